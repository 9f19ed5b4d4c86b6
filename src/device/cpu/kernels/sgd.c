/* sgd.c: gradient descent, plain and with momentum. */
#include <string.h>

#include "device/cpu/kernels/update.h"
#include "device/cpu/support/ref.h"

struct sgd {
    float lr, scale, weight_decay, momentum;
    bool nesterov;
    bool first; /* the buffer starts as the gradient */
};

static void sgd_block(const void *rule, float *const *block, const float *grad, int64_t at,
                      int64_t n)
{
    (void)at;
    const struct sgd r = *(const struct sgd *)rule;
    float *restrict p = block[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] -= r.lr * (grad[i] * r.scale + r.weight_decay * p[i]);
}

/* block: parameter, momentum buffer */
static void sgd_momentum_block(const void *rule, float *const *block, const float *grad, int64_t at,
                               int64_t n)
{
    (void)at;
    const struct sgd r = *(const struct sgd *)rule;
    float *restrict p = block[0], *restrict buf = block[1];
    const float old = r.first ? 0.0f : r.momentum; /* weight of the old buffer */
    const float fresh = r.nesterov ? 1.0f : 0.0f;  /* step = fresh g + carried buf' */
    const float carried = r.nesterov ? r.momentum : 1.0f;
    if (r.first)
        memset(buf, 0, (size_t)n * sizeof(float));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * r.scale + r.weight_decay * p[i];
        buf[i] = old * buf[i] + g;
        p[i] -= r.lr * (fresh * g + carried * buf[i]);
    }
}

static enum status sgd_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct update_stream param = {
        .in = &c->in[0], .out = &c->out[0], .rounding = ROUND_PARAM};
    const struct sgd rule = {
        .lr = (float)ref_get(&c->in[2], 0),
        .scale = (float)ref_get(&c->in[4], 0),
        .weight_decay = (float)call_float(c, 0),
    };
    const struct update u = {.streams = &param,
                             .n_streams = 1,
                             .grad = &c->in[1],
                             .apply = sgd_block,
                             .rule = &rule,
                             .draw = update_draw_of(c, 1, 3)};
    if (update_is_skipped(&c->in[4]))
        update_copy(&param, 1);
    else
        update_run(x, &u);
    return OK;
}

static enum status sgd_momentum_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct update_stream streams[] = {
        {.in = &c->in[0], .out = &c->out[0], .rounding = ROUND_PARAM},
        {.in = &c->in[2], .out = &c->out[1], .rounding = ROUND_STATE1}};
    const struct sgd rule = {
        .lr = (float)ref_get(&c->in[3], 0),
        .scale = (float)ref_get(&c->in[5], 0),
        .weight_decay = (float)call_float(c, 2),
        .momentum = (float)call_float(c, 0),
        .nesterov = call_bool(c, 1),
        .first = ref_get(&c->in[4], 0) <= 1.0,
    };
    const struct update u = {.streams = streams,
                             .n_streams = 2,
                             .grad = &c->in[1],
                             .apply = sgd_momentum_block,
                             .rule = &rule,
                             .draw = update_draw_of(c, 3, 4)};
    if (update_is_skipped(&c->in[5]))
        update_copy(streams, 2);
    else
        update_run(x, &u);
    return OK;
}

static enum status sgd_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct update_stream param = {
        .in = &c->in[0], .out = &c->out[0], .rounding = ROUND_PARAM};
    const struct update_draw draw = update_draw_of(c, 1, 3);
    double lr = ref_get(&c->in[2], 0), scale = ref_get(&c->in[4], 0);
    if (update_is_skipped(&c->in[4])) {
        update_copy(&param, 1);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double p = ref_get(&c->in[0], i);
        double g = scale * ref_get(&c->in[1], i) + call_float(c, 0) * p;
        update_set(&param, i, p - lr * g, &draw);
    }
    return OK;
}

static enum status sgd_momentum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct update_stream streams[] = {
        {.in = &c->in[0], .out = &c->out[0], .rounding = ROUND_PARAM},
        {.in = &c->in[2], .out = &c->out[1], .rounding = ROUND_STATE1}};
    double lr = ref_get(&c->in[3], 0), scale = ref_get(&c->in[5], 0), t = ref_get(&c->in[4], 0);
    double momentum = call_float(c, 0);
    const struct update_draw draw = update_draw_of(c, 3, 4);
    if (update_is_skipped(&c->in[5])) {
        update_copy(streams, 2);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double p = ref_get(&c->in[0], i);
        double g = scale * ref_get(&c->in[1], i) + call_float(c, 2) * p;
        double buf = t <= 1.0 ? g : momentum * ref_get(&c->in[2], i) + g;
        update_set(&streams[0], i, p - lr * (call_bool(c, 1) ? g + momentum * buf : buf), &draw);
        update_set(&streams[1], i, buf, &draw);
    }
    return OK;
}

const struct kernel cpu_kernels_sgd[] = {
    {"blocked", cpu_declines_f64, NULL, sgd_blocked},
    {"reference", NULL, NULL, sgd_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_sgd_momentum[] = {
    {"blocked", cpu_declines_f64, NULL, sgd_momentum_blocked},
    {"reference", NULL, NULL, sgd_momentum_reference},
    KERNEL_END,
};
