/* sgd.c: gradient descent, plain and with momentum, on the parameter or on its master. */
#include <string.h>

#include "device/cpu/kernels/update_call.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

enum { PLAIN_LR = 2, MOMENTUM_LR = 3 }; /* inputs; step and scale follow */

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
    const struct sgd rule = {
        .lr = (float)ref_get(&c->in[PLAIN_LR], 0),
        .scale = (float)ref_get(&c->in[PLAIN_LR + 2], 0),
        .weight_decay = (float)call_float(c, SGD_WEIGHT_DECAY),
    };
    return update_call_run(x, c, 0, PLAIN_LR, sgd_block, &rule);
}

static enum status sgd_momentum_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct sgd rule = {
        .lr = (float)ref_get(&c->in[MOMENTUM_LR], 0),
        .scale = (float)ref_get(&c->in[MOMENTUM_LR + 2], 0),
        .weight_decay = (float)call_float(c, SGD_MOMENTUM_WEIGHT_DECAY),
        .momentum = (float)call_float(c, SGD_MOMENTUM),
        .nesterov = call_bool(c, SGD_NESTEROV),
        .first = ref_get(&c->in[MOMENTUM_LR + 1], 0) <= 1.0,
    };
    return update_call_run(x, c, 1, MOMENTUM_LR, sgd_momentum_block, &rule);
}

static void sgd_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                        double *p, double *state)
{
    (void)rule;
    (void)i;
    (void)state;
    double scale = ref_get(&c->in[PLAIN_LR + 2], 0);
    *p -= ref_get(&c->in[PLAIN_LR], 0) * (scale * grad + call_float(c, SGD_WEIGHT_DECAY) * *p);
}

static void sgd_momentum_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                                 double *p, double *state)
{
    (void)rule;
    (void)i;
    double lr = ref_get(&c->in[MOMENTUM_LR], 0), t = ref_get(&c->in[MOMENTUM_LR + 1], 0);
    double momentum = call_float(c, SGD_MOMENTUM);
    double g =
        ref_get(&c->in[MOMENTUM_LR + 2], 0) * grad + call_float(c, SGD_MOMENTUM_WEIGHT_DECAY) * *p;
    *state = t <= 1.0 ? g : momentum * *state + g;
    *p -= lr * (call_bool(c, SGD_NESTEROV) ? g + momentum * *state : *state);
}

static enum status sgd_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    return update_call_reference(x, c, 0, PLAIN_LR, sgd_element, NULL);
}

static enum status sgd_momentum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    return update_call_reference(x, c, 1, MOMENTUM_LR, sgd_momentum_element, NULL);
}

#define LIST(op, fast, slow)                       \
    const struct kernel cpu_kernels_##op[] = {     \
        {"blocked", cpu_declines_f64, NULL, fast}, \
        {"reference", NULL, NULL, slow},           \
        KERNEL_END,                                \
    };
LIST(sgd, sgd_blocked, sgd_reference)
LIST(sgd_master, sgd_blocked, sgd_reference)
LIST(sgd_momentum, sgd_momentum_blocked, sgd_momentum_reference)
LIST(sgd_momentum_master, sgd_momentum_blocked, sgd_momentum_reference)
