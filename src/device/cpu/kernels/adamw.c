/* adamw.c: AdamW on the parameter itself, or on its master. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernels/update.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

/* Everything that is the same for all elements, worked out in f64. */
struct adamw {
    float scale, keep;           /* of the gradient; 1 - lr weight_decay */
    float beta1, beta2;          /* */
    float rate1, rate2;          /* 1 - beta */
    float step_size, correction; /* lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    float epsilon;
};

static struct adamw adamw_rule(const struct op_call *c)
{
    double beta1 = call_float(c, ADAMW_BETA1), beta2 = call_float(c, ADAMW_BETA2);
    double lr = ref_get(&c->in[4], 0), step = ref_get(&c->in[5], 0);
    return (struct adamw){
        .scale = (float)ref_get(&c->in[6], 0),
        .keep = (float)(1.0 - lr * call_float(c, ADAMW_WEIGHT_DECAY)),
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .rate1 = (float)(1.0 - beta1),
        .rate2 = (float)(1.0 - beta2),
        .step_size = (float)(lr / (1.0 - pow(beta1, step))),
        .correction = (float)(1.0 / sqrt(1.0 - pow(beta2, step))),
        .epsilon = (float)call_float(c, ADAMW_EPSILON),
    };
}

/* block: parameter (or master), m, v */
static void adamw_block(const void *rule, float *const *block, const float *grad, int64_t n)
{
    const struct adamw r = *(const struct adamw *)rule;
    float *restrict p = block[0], *restrict m = block[1], *restrict v = block[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * r.scale;
        m[i] = r.beta1 * m[i] + r.rate1 * g;
        v[i] = r.beta2 * v[i] + r.rate2 * (g * g);
        p[i] = p[i] * r.keep - r.step_size * m[i] / (sqrtf(v[i]) * r.correction + r.epsilon);
    }
}

/* The fourth block is the parameter, rounded from the first, the master. */
static void adamw_master_block(const void *rule, float *const *block, const float *grad, int64_t n)
{
    adamw_block(rule, block, grad, n);
    memcpy(block[3], block[0], (size_t)n * sizeof(float));
}

/* The tensors a call changes: what the rule acts on, m, v, and the parameter behind a master. */
struct adamw_streams {
    struct update_stream list[UPDATE_STREAMS];
    int n;
};

static struct adamw_streams streams_of(const struct op_call *c)
{
    struct adamw_streams s = {.n = 3};
    bool master = c->n_in > 7;
    s.list[0] = (struct update_stream){&c->in[master ? 7 : 0], &c->out[master ? 3 : 0],
                                       master ? ROUND_NEAREST : ROUND_PARAM};
    s.list[1] = (struct update_stream){&c->in[2], &c->out[1], ROUND_STATE1};
    s.list[2] = (struct update_stream){&c->in[3], &c->out[2], ROUND_STATE2};
    if (master)
        s.list[s.n++] = (struct update_stream){&c->in[0], &c->out[0], ROUND_NEAREST};
    return s;
}

static enum status adamw_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct adamw_streams s = streams_of(c);
    const struct adamw rule = adamw_rule(c);
    const struct update u = {
        .streams = s.list,
        .n_streams = s.n,
        .grad = &c->in[1],
        .apply = s.n > 3 ? adamw_master_block : adamw_block,
        .rule = &rule,
        .seed = (uint64_t)call_int(c, ADAMW_SEED),
        .step = (int64_t)ref_get(&c->in[5], 0),
    };
    if (update_is_skipped(&c->in[6]))
        update_copy(s.list, s.n);
    else
        update_run(x, &u);
    return OK;
}

static void adamw_element(const struct op_call *c, const struct adamw_streams *s, int64_t i)
{
    double beta1 = call_float(c, ADAMW_BETA1), beta2 = call_float(c, ADAMW_BETA2);
    double lr = ref_get(&c->in[4], 0), t = ref_get(&c->in[5], 0);
    double g = ref_get(&c->in[1], i) * ref_get(&c->in[6], 0);
    double p = ref_get(s->list[0].in, i), m = ref_get(&c->in[2], i), v = ref_get(&c->in[3], i);
    uint64_t seed = (uint64_t)call_int(c, ADAMW_SEED);
    p -= lr * call_float(c, ADAMW_WEIGHT_DECAY) * p;
    m = beta1 * m + (1.0 - beta1) * g;
    v = beta2 * v + (1.0 - beta2) * g * g;
    double denominator = sqrt(v) / sqrt(1.0 - pow(beta2, t)) + call_float(c, ADAMW_EPSILON);
    p -= lr / (1.0 - pow(beta1, t)) * m / denominator;
    update_set(&s->list[0], i, p, seed, (int64_t)t);
    update_set(&s->list[1], i, m, seed, (int64_t)t);
    update_set(&s->list[2], i, v, seed, (int64_t)t);
    if (s->n > 3)
        ref_set(s->list[3].out, i, ref_get(s->list[0].out, i));
}

static enum status adamw_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct adamw_streams s = streams_of(c);
    if (update_is_skipped(&c->in[6])) {
        update_copy(s.list, s.n);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        adamw_element(c, &s, i);
    return OK;
}

const struct kernel cpu_kernels_adamw[] = {
    {"blocked", cpu_declines_f64, NULL, adamw_blocked},
    {"reference", NULL, NULL, adamw_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adamw_master[] = {
    {"blocked", cpu_declines_f64, NULL, adamw_blocked},
    {"reference", NULL, NULL, adamw_reference},
    KERNEL_END,
};
