/* lion.c: Lion, with a momentum of numbers or in 8-bit codes, on the parameter or on its master. */
#include <math.h>

#include "device/cpu/kernels/update_call.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

enum { N_STATES = 1 }; /* the momentum */

/* Everything that is the same for all elements, worked out in f64. */
struct lion {
    float scale, keep, lr; /* of the gradient; 1 - lr weight_decay */
    float beta1, beta2;
    float rate1, rate2; /* 1 - beta */
};

static void lion_block(const void *rule, float *const *block, const float *grad, int64_t at,
                       int64_t n)
{
    (void)at;
    const struct lion r = *(const struct lion *)rule;
    float *restrict p = block[0], *restrict m = block[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * r.scale;
        float way = r.beta1 * m[i] + r.rate1 * g;
        float step = way > 0.0f ? r.lr : way < 0.0f ? -r.lr : way * r.lr; /* NaN stays NaN */
        p[i] = p[i] * r.keep - step;
        m[i] = r.beta2 * m[i] + r.rate2 * g;
    }
}

static enum status lion_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int at = update_lr_input(c, N_STATES);
    double beta1 = call_float(c, LION_BETA1), beta2 = call_float(c, LION_BETA2);
    double lr = ref_get(&c->in[at], 0);
    const struct lion rule = {
        .scale = (float)ref_get(&c->in[at + 2], 0),
        .keep = (float)(1.0 - lr * call_float(c, LION_WEIGHT_DECAY)),
        .lr = (float)lr,
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .rate1 = (float)(1.0 - beta1),
        .rate2 = (float)(1.0 - beta2),
    };
    return update_call_run(x, c, N_STATES, at, lion_block, &rule);
}

static void lion_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                         double *p, double *state)
{
    int at = update_lr_input(c, N_STATES);
    (void)rule;
    (void)i;
    double beta1 = call_float(c, LION_BETA1), beta2 = call_float(c, LION_BETA2);
    double lr = ref_get(&c->in[at], 0), g = grad * ref_get(&c->in[at + 2], 0);
    double way = beta1 * *state + (1.0 - beta1) * g;
    *p -= lr * call_float(c, LION_WEIGHT_DECAY) * *p;
    *p -= lr * (way > 0.0 ? 1.0 : way < 0.0 ? -1.0 : way);
    *state = beta2 * *state + (1.0 - beta2) * g;
}

static enum status lion_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    return update_call_reference(x, c, N_STATES, update_lr_input(c, N_STATES), lion_element, NULL);
}

const struct kernel cpu_kernels_lion[] = {
    {"blocked", cpu_declines_f64, NULL, lion_blocked},
    {"reference", NULL, NULL, lion_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_lion_master[] = {
    {"blocked", cpu_declines_f64, NULL, lion_blocked},
    {"reference", NULL, NULL, lion_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_lion_8bit[] = {
    {"blocked", cpu_declines_f64, update_maps_bytes, lion_blocked},
    {"reference", NULL, update_maps_bytes, lion_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_lion_8bit_master[] = {
    {"blocked", cpu_declines_f64, update_maps_bytes, lion_blocked},
    {"reference", NULL, update_maps_bytes, lion_reference},
    KERNEL_END,
};
