/* piecewise.c: elementwise functions that are put together of pieces, some with a number that says
 * where they change (slope, alpha, delta), and their gradients; of up to three operands.
 *
 * A function is written once for float and once for double: f<name>(a, b, c, s), where a, b, c are
 * the operands (those that are not there repeat the first) and s is the attribute. */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"

typedef void piece_fn(float *y, const float *a, const float *b, const float *c, float s, int64_t n);

struct piecewise {
    const struct op_call *c;
    piece_fn *fn;
    float s;
};

static void piecewise_block(const void *job, int64_t at, int64_t size)
{
    const struct piecewise *p = job;
    const struct op_call *c = p->c;
    float buffers[3][CPU_BLOCK], y_buffer[CPU_BLOCK];
    const float *first = block_read(&c->in[0], at, size, buffers[0]),
                *in[3] = {first, first, first};
    for (int i = 1; i < c->n_in; i++)
        in[i] = block_read(&c->in[i], at, size, buffers[i]);
    float *y = block_open(&c->out[0], at, y_buffer);
    p->fn(y, in[0], in[1], in[2], p->s, size);
    block_close(&c->out[0], at, y, size);
}

static double attribute(const struct op_call *c)
{
    return op_get(c->op)->n_attrs ? call_float(c, 0) : 0.0;
}

static enum status run_blocks(const struct kernel_ctx *x, const struct op_call *c, piece_fn *fn)
{
    struct piecewise p = {c, fn, (float)attribute(c)};
    cpu_each_block(x, shape_elems(&c->out[0].shape), piecewise_block, &p);
    return OK;
}

static enum status run_reference(const struct op_call *c,
                                 double (*fn)(double, double, double, double))
{
    double s = attribute(c);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double a = ref_get(&c->in[0], i), in[3] = {a, a, a};
        for (int k = 1; k < c->n_in; k++)
            in[k] = ref_get(&c->in[k], i);
        ref_set(&c->out[0], i, fn(in[0], in[1], in[2], s));
    }
    return OK;
}

/* Of gradients a is dy. NaN goes through, except where it is what the function is about. */
#define PIECEWISE(name, in_float, in_double)                                                       \
    static void name##_block(float *y, const float *pa, const float *pb, const float *pc, float s, \
                             int64_t n)                                                            \
    {                                                                                              \
        (void)s;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float a = pa[i], b = pb[i], c = pc[i];                                           \
            (void)b;                                                                               \
            (void)c;                                                                               \
            y[i] = in_float;                                                                       \
        }                                                                                          \
    }                                                                                              \
    static double name##_ref(double a, double b, double c, double s)                               \
    {                                                                                              \
        (void)b;                                                                                   \
        (void)c;                                                                                   \
        (void)s;                                                                                   \
        return in_double;                                                                          \
    }                                                                                              \
    static enum status name##_blocked(const struct kernel_ctx *x, const struct op_call *call)      \
    {                                                                                              \
        return run_blocks(x, call, name##_block);                                                  \
    }                                                                                              \
    static enum status name##_reference(const struct kernel_ctx *x, const struct op_call *call)    \
    {                                                                                              \
        (void)x;                                                                                   \
        return run_reference(call, name##_ref);                                                    \
    }                                                                                              \
    const struct kernel cpu_kernels_##name[] = {                                                   \
        {"blocked", cpu_declines_f64, NULL, name##_blocked},                                       \
        {"reference", NULL, NULL, name##_reference},                                               \
        KERNEL_END,                                                                                \
    };

PIECEWISE(leaky_relu, a > 0.0f ? a : s * a, a > 0.0 ? a : s * a)
PIECEWISE(leaky_relu_grad, b > 0.0f ? a : s * a, b > 0.0 ? a : s * a)
PIECEWISE(elu, a > 0.0f ? a : s * expm1f(a), a > 0.0 ? a : s * expm1(a))
PIECEWISE(elu_grad, b > 0.0f ? a : a * s * expf(b), b > 0.0 ? a : a * s * exp(b))
PIECEWISE(softplus, fmaxf(a, 0.0f) + log1pf(expf(-fabsf(a))), fmax(a, 0.0) + log1p(exp(-fabs(a))))
PIECEWISE(abs, fabsf(a), fabs(a))
PIECEWISE(abs_grad, b > 0.0f ? a : b < 0.0f ? -a : 0.0f, b > 0.0 ? a : b < 0.0 ? -a : 0.0)
PIECEWISE(huber, fabsf(a) <= s ? 0.5f * a * a : s * (fabsf(a) - 0.5f * s),
          fabs(a) <= s ? 0.5 * a * a : s * (fabs(a) - 0.5 * s))
PIECEWISE(huber_grad, a *(b > s ? s : b < -s ? -s : b), a *(b > s ? s : b < -s ? -s : b))
PIECEWISE(clamp, a > s ? s : a < -s ? -s : a, a > s ? s : a < -s ? -s : a)
PIECEWISE(clamp_grad, fabsf(b) <= s ? a : 0.0f, fabs(b) <= s ? a : 0.0)
PIECEWISE(nan_to_zero, isnan(a) ? 0.0f : a, isnan(a) ? 0.0 : a)
PIECEWISE(nan_to_zero_grad, isnan(b) ? 0.0f : a, isnan(b) ? 0.0 : a)
PIECEWISE(minimum, a < b || isnan(a) ? a : b, a < b || isnan(a) ? a : b)
PIECEWISE(maximum, a > b || isnan(a) ? a : b, a > b || isnan(a) ? a : b)
PIECEWISE(minimum_grad, b<c ? a : b> c ? 0.0f : 0.5f * a, b<c ? a : b> c ? 0.0 : 0.5 * a)
PIECEWISE(bce_with_logits, fmaxf(a, 0.0f) - a * b + log1pf(expf(-fabsf(a))),
          fmax(a, 0.0) - a * b + log1p(exp(-fabs(a))))
PIECEWISE(bce_with_logits_grad, a *(cpu_sigmoidf(b) - c), a *(1.0 / (1.0 + exp(-b)) - c))
