/* binary.c: add, sub, mul, div. b's elements repeat over a's leading axes: element i of a meets
 * element i % n_b of b. */
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- blocks --------------------------------------------------------------------------------- */

typedef void binary_fn(float *y, const float *a, const float *b, int64_t n);

#define BINARY(name, expression)                                                  \
    static void name##_block(float *y, const float *a, const float *b, int64_t n) \
    {                                                                             \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = expression;    \
    }
BINARY(add, a[i] + b[i])
BINARY(sub, a[i] - b[i])
BINARY(mul, a[i] * b[i])
BINARY(div, a[i] / b[i])
#undef BINARY

/* Elements [at, at + n) of b repeated for ever. */
static const float *read_repeated(const struct tensor *b, int64_t n_b, int64_t at, int64_t n,
                                  float *buffer)
{
    int64_t start = at % n_b;
    if (start + n <= n_b)
        return block_read(b, start, n, buffer);
    int64_t done = MIN(n, n_b - start);
    cpu_load_f32(buffer, b->data, b->dtype, start, done);
    while (done < n) {
        int64_t length = MIN(n - done, n_b);
        cpu_load_f32(buffer + done, b->data, b->dtype, 0, length);
        done += length;
    }
    return buffer;
}

struct binary {
    const struct op_call *c;
    binary_fn *fn;
};

static void binary_block(const void *job, int64_t at, int64_t size)
{
    const struct binary *p = job;
    const struct op_call *c = p->c;
    float a_buffer[CPU_BLOCK], b_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    const float *a = block_read(&c->in[0], at, size, a_buffer);
    const float *b = read_repeated(&c->in[1], shape_elems(&c->in[1].shape), at, size, b_buffer);
    float *y = block_open(&c->out[0], at, y_buffer);
    p->fn(y, a, b, size);
    block_close(&c->out[0], at, y, size);
}

static void run_blocks(const struct kernel_ctx *x, const struct op_call *c, binary_fn *fn)
{
    struct binary p = {c, fn};
    cpu_each_block(x, shape_elems(&c->out[0].shape), binary_block, &p);
}

/* ---- reference ------------------------------------------------------------------------------ */

static double add_ref(double a, double b)
{
    return a + b;
}

static double sub_ref(double a, double b)
{
    return a - b;
}

static double mul_ref(double a, double b)
{
    return a * b;
}

static double div_ref(double a, double b)
{
    return a / b;
}

static void run_reference(const struct op_call *c, double (*fn)(double, double))
{
    int64_t n = shape_elems(&c->out[0].shape), n_b = shape_elems(&c->in[1].shape);
    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, fn(ref_get(&c->in[0], i), ref_get(&c->in[1], i % n_b)));
}

/* ---- lists ---------------------------------------------------------------------------------- */

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
KERNELS(add)
KERNELS(sub)
KERNELS(mul)
KERNELS(div)
