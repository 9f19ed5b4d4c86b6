/* adamw_rule.h: AdamW's rule, for states that are numbers and for states in codes. */
#ifndef SNUG_DEVICE_CPU_KERNELS_ADAMW_RULE_H
#define SNUG_DEVICE_CPU_KERNELS_ADAMW_RULE_H

#include <math.h>
#include <string.h>

#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

#ifdef __cplusplus
extern "C" {
#endif

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
static inline struct adamw adamw_rule(const struct op_call *c, int at)
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

/* block: parameter (or master), m, v */
static inline void adamw_block(const void *rule, float *const *block, const float *grad, int64_t n)
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

/* The fourth block is the parameter, made again from the first, the master. */
static inline void adamw_master_block(const void *rule, float *const *block, const float *grad,
                                      int64_t n)
{
    adamw_block(rule, block, grad, n);
    memcpy(block[3], block[0], (size_t)n * sizeof(float));
}

/* ---- one element in f64, for the reference --------------------------------------------------- */

static inline void adamw_apply(const struct op_call *c, int at, double grad, double *p, double *m,
                               double *v)
{
    double beta1 = call_float(c, ADAMW_BETA1), beta2 = call_float(c, ADAMW_BETA2);
    double lr = ref_get(&c->in[at], 0), t = ref_get(&c->in[at + 1], 0);
    double g = grad * ref_get(&c->in[at + 2], 0);
    *p -= lr * call_float(c, ADAMW_WEIGHT_DECAY) * *p;
    *m = beta1 * *m + (1.0 - beta1) * g;
    *v = beta2 * *v + (1.0 - beta2) * g * g;
    double denominator = sqrt(*v) / sqrt(1.0 - pow(beta2, t)) + call_float(c, ADAMW_EPSILON);
    *p -= lr / (1.0 - pow(beta1, t)) * *m / denominator;
}

#ifdef __cplusplus
}
#endif
#endif
