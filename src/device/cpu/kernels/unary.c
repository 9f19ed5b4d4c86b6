/* unary.c: elementwise functions of one operand, and their gradients from (dy, x or y). */
#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"

/* ---- blocks --------------------------------------------------------------------------------- */

typedef void block_fn(float *y, const float *a, const float *b, int64_t n);

/* Functions of a alone and of (a, b); the ones of a alone are given a twice. */
#define BLOCK(name, expression)                                                   \
    static void name##_block(float *y, const float *a, const float *b, int64_t n) \
    {                                                                             \
        (void)b;                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = expression;    \
    }
BLOCK(exp, cpu_expf(a[i]))
BLOCK(log, cpu_logf(a[i]))
BLOCK(sqrt, sqrtf(a[i]))
BLOCK(relu, a[i] < 0.0f ? 0.0f : a[i]) /* NaN stays NaN */
BLOCK(relu_grad, b[i] > 0.0f ? a[i] : 0.0f)
BLOCK(sigmoid, cpu_sigmoidf(a[i]))
BLOCK(sigmoid_grad, a[i] * b[i] * (1.0f - b[i]))
BLOCK(tanh, cpu_tanhf(a[i]))
BLOCK(tanh_grad, a[i] * (1.0f - b[i] * b[i]))
#undef BLOCK

struct pointwise {
    const struct op_call *c;
    block_fn *fn;
};

static void pointwise_block(const void *job, int64_t at, int64_t size)
{
    const struct pointwise *p = job;
    const struct op_call *c = p->c;
    float a_buffer[CPU_BLOCK], b_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    const float *a = block_read(&c->in[0], at, size, a_buffer);
    const float *b = c->n_in > 1 ? block_read(&c->in[1], at, size, b_buffer) : a;
    float *y = block_open(&c->out[0], at, y_buffer);
    p->fn(y, a, b, size);
    block_close(&c->out[0], at, y, size);
}

static void run_blocks(const struct kernel_ctx *x, const struct op_call *c, block_fn *fn)
{
    struct pointwise p = {c, fn};
    cpu_each_block(x, shape_elems(&c->out[0].shape), pointwise_block, &p);
}

/* ---- reference ------------------------------------------------------------------------------ */

#define REFERENCE(name, expression)              \
    static double name##_ref(double a, double b) \
    {                                            \
        (void)b;                                 \
        return expression;                       \
    }
REFERENCE(exp, exp(a))
REFERENCE(log, log(a))
REFERENCE(sqrt, sqrt(a))
REFERENCE(relu, a < 0.0 ? 0.0 : a)
REFERENCE(relu_grad, b > 0.0 ? a : 0.0)
REFERENCE(sigmoid, 1.0 / (1.0 + exp(-a)))
REFERENCE(sigmoid_grad, a *b *(1.0 - b))
REFERENCE(tanh, tanh(a))
REFERENCE(tanh_grad, a *(1.0 - b * b))
#undef REFERENCE

static void run_reference(const struct op_call *c, double (*fn)(double, double))
{
    int64_t n = shape_elems(&c->out[0].shape);
    const struct tensor *b = &c->in[c->n_in > 1 ? 1 : 0];
    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, fn(ref_get(&c->in[0], i), ref_get(b, i)));
}

/* ---- scale ---------------------------------------------------------------------------------- */

static double scale_factor(const struct op_call *c)
{
    return call_float(c, 0) * (call_has(c, 1) ? ref_get(&c->in[1], 0) : 1.0);
}

static void scale_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    float a_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK], factor = (float)scale_factor(c);
    const float *a = block_read(&c->in[0], at, size, a_buffer);
    float *y = block_open(&c->out[0], at, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < size; i++)
        y[i] = factor * a[i];
    block_close(&c->out[0], at, y, size);
}

static enum status scale_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), scale_block, c);
    return OK;
}

static enum status scale_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double factor = scale_factor(c);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, factor * ref_get(&c->in[0], i));
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_scale[] = {
    {"blocked", cpu_declines_f64, NULL, scale_blocked},
    {"reference", NULL, NULL, scale_reference},
    KERNEL_END,
};

#define KERNELS(name)                                                                        \
    static enum status name##_blocked(const struct kernel_ctx *x, const struct op_call *c)   \
    {                                                                                        \
        run_blocks(x, c, name##_block);                                                      \
        return OK;                                                                           \
    }                                                                                        \
    static enum status name##_reference(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                                        \
        (void)x;                                                                             \
        run_reference(c, name##_ref);                                                        \
        return OK;                                                                           \
    }                                                                                        \
    const struct kernel cpu_kernels_##name[] = {                                             \
        {"blocked", cpu_declines_f64, NULL, name##_blocked},                                 \
        {"reference", NULL, NULL, name##_reference},                                         \
        KERNEL_END,                                                                          \
    };
KERNELS(exp)
KERNELS(log)
KERNELS(sqrt)
KERNELS(relu)
KERNELS(relu_grad)
KERNELS(sigmoid)
KERNELS(sigmoid_grad)
KERNELS(tanh)
KERNELS(tanh_grad)
