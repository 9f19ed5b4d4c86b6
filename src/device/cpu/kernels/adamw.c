/* adamw.c: AdamW on the parameter itself, or on its master. */
#include <math.h>

#include "base/sanitizer.h"
#include "device/cpu/kernels/adamw_rule.h"
#include "device/cpu/kernels/update_call.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

enum { N_STATES = 2 }; /* m, v */

/* ---- in f32, block by block ------------------------------------------------------------------ */

/* Everything that is the same for all elements, worked out in f64. */
struct adamw {
    float scale, keep;           /* of the gradient; 1 - lr weight_decay */
    float beta1, beta2;          /* */
    float rate1, rate2;          /* 1 - beta */
    float step_size, correction; /* lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    float epsilon;
};

/* Inputs lr, step, scale begin at `at`. */
static struct adamw adamw_rule(const struct op_call *c, int at)
{
    double beta1 = call_float(c, ADAMW_BETA1), beta2 = call_float(c, ADAMW_BETA2);
    double lr = ref_get(&c->in[at], 0), step = ref_get(&c->in[at + 1], 0);
    return (struct adamw){
        .scale = (float)ref_get(&c->in[at + 2], 0),
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

static UNSANITIZED void adamw_block(const void *rule, float *const *block, const float *grad,
                                    int64_t at, int64_t n)
{
    (void)at;
    const struct adamw r = *(const struct adamw *)rule;
    float *restrict p = block[0], *restrict m = block[1], *restrict v = block[2];
    sanitizer_expect(grad, (size_t)n * sizeof(*grad));
    for (int i = 0; i < 1 + N_STATES; i++)
        sanitizer_expect(block[i], (size_t)n * sizeof(**block));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * r.scale;
        m[i] = r.beta1 * m[i] + r.rate1 * g;
        v[i] = r.beta2 * v[i] + r.rate2 * (g * g);
        p[i] = p[i] * r.keep - r.step_size * m[i] / (sqrtf(v[i]) * r.correction + r.epsilon);
    }
}

enum status adamw_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int at = update_lr_input(c, N_STATES);
    const struct adamw rule = adamw_rule(c, at);
    return update_call_run(x, c, N_STATES, at, adamw_block, &rule);
}

/* ---- the reference --------------------------------------------------------------------------- */

static void adamw_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                          double *p, double *state)
{
    int at = update_lr_input(c, N_STATES);
    (void)rule;
    (void)i;
    double beta1 = call_float(c, ADAMW_BETA1), beta2 = call_float(c, ADAMW_BETA2);
    double lr = ref_get(&c->in[at], 0), t = ref_get(&c->in[at + 1], 0);
    double g = grad * ref_get(&c->in[at + 2], 0), *m = &state[0], *v = &state[1];
    *p -= lr * call_float(c, ADAMW_WEIGHT_DECAY) * *p;
    *m = beta1 * *m + (1.0 - beta1) * g;
    *v = beta2 * *v + (1.0 - beta2) * g * g;
    double denominator = sqrt(*v) / sqrt(1.0 - pow(beta2, t)) + call_float(c, ADAMW_EPSILON);
    *p -= lr / (1.0 - pow(beta1, t)) * *m / denominator;
}

enum status adamw_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    return update_call_reference(x, c, N_STATES, update_lr_input(c, N_STATES), adamw_element, NULL);
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
