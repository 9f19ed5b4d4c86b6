/* activation.c: silu, gelu, and gelu behind a bias, with gradients. */
#include "device/cpu/kernels/activation.h"

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- blocks --------------------------------------------------------------------------------- */

typedef void block_fn(float *y, const float *a, const float *b, int64_t n);

#define BLOCK(name, expression)                                                   \
    static void name##_block(float *y, const float *a, const float *b, int64_t n) \
    {                                                                             \
        (void)b;                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = expression;    \
    }
BLOCK(silu, silu(a[i]))
BLOCK(silu_grad, a[i] * silu_slope(b[i]))
BLOCK(gelu_exact, gelu_exact(a[i]))
BLOCK(gelu_exact_grad, a[i] * gelu_exact_slope(b[i]))
BLOCK(gelu_tanh, gelu_tanh(a[i]))
BLOCK(gelu_tanh_grad, a[i] * gelu_tanh_slope(b[i]))
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

/* y = fn(a) or fn(a, b), everything of one shape. */
static void run_blocks(const struct kernel_ctx *x, const struct op_call *c, block_fn *fn)
{
    struct pointwise p = {c, fn};
    cpu_each_block(x, shape_elems(&c->out[0].shape), pointwise_block, &p);
}

static enum status silu_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    run_blocks(x, c, silu_block);
    return OK;
}

static enum status silu_grad_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    run_blocks(x, c, silu_grad_block);
    return OK;
}

static enum status gelu_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    run_blocks(x, c, call_bool(c, 0) ? gelu_tanh_block : gelu_exact_block);
    return OK;
}

static enum status gelu_grad_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    run_blocks(x, c, call_bool(c, 0) ? gelu_tanh_grad_block : gelu_exact_grad_block);
    return OK;
}

enum { GELU_Y = 2 }; /* the output that gelu_bias_with_grad adds */

/* ---- gelu_bias: gelu(x + bias), bias one row ------------------------------------------------- */

#define BLOCK(name)                                                                              \
    static void gelu_##name##_bias_block(float *y, const float *x, const float *bias, int64_t n) \
    {                                                                                            \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = gelu_##name(x[i] + bias[i]);  \
    }                                                                                            \
    /* Adds dx to sum as well. An output may be dy or x. */                                      \
    static void gelu_##name##_bias_grad_block(float *dx, float *y, const float *dy,              \
                                              const float *x, const float *bias,                 \
                                              float *restrict sum, int64_t n)                    \
    {                                                                                            \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                      \
        {                                                                                        \
            float z = x[i] + bias[i], d = dy[i] * gelu_##name##_slope(z);                        \
            sum[i] += d;                                                                         \
            dx[i] = d;                                                                           \
            y[i] = gelu_##name(z);                                                               \
        }                                                                                        \
    }
BLOCK(exact)
BLOCK(tanh)
#undef BLOCK

/* Workspace begins with the bias as floats, so that it is converted once and not for every row. */
static int64_t bias_floats(const struct tensor *bias)
{
    return bias->dtype == DTYPE_F32 ? 0 : (bias->shape.dim[0] + 15) / 16 * 16;
}

static int64_t gelu_bias_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return bias_floats(&c->in[1]) * (int64_t)sizeof(float);
}

struct biased {
    const struct op_call *c;
    const float *bias; /* [width] */
    float *partial;    /* [bands, width], of the gradient */
};

static void gelu_bias_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct biased *b = job;
    const struct op_call *c = b->c;
    block_fn *fn = call_bool(c, 0) ? gelu_tanh_bias_block : gelu_exact_bias_block;
    int64_t width = shape_last(&c->out[0].shape), per_row = block_count(width);
    (void)thread;
    for (int64_t i_block = first; i_block < last; i_block++) {
        float x_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
        int64_t row = i_block / per_row, column = i_block % per_row * CPU_BLOCK;
        int64_t size = block_size(width, column), at = row * width + column;
        const float *in = block_read(&c->in[0], at, size, x_buffer);
        float *y = block_open(&c->out[0], at, y_buffer);
        fn(y, in, b->bias + column, size);
        block_close(&c->out[0], at, y, size);
    }
}

static enum status gelu_bias_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t width = shape_last(&c->out[0].shape), n_rows = shape_elems(&c->out[0].shape) / width;
    struct biased b = {c, block_read(&c->in[1], 0, width, x->workspace), NULL};
    cpu_loop(x, n_rows * block_count(width), MIN(width, (int64_t)CPU_BLOCK), gelu_bias_blocks, &b);
    return OK;
}

/* Rows are cut into bands, one task each: sums are f32 over the rows of a band, f64 over bands. The
 * cut depends on the number of rows alone, so threads do not show. */
enum { BAND_ROWS = 32 };

static int64_t band_count(int64_t n_rows)
{
    return (n_rows + BAND_ROWS - 1) / BAND_ROWS;
}

static int64_t gelu_bias_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    int64_t width = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / width;
    return (bias_floats(&c->in[2]) + band_count(n_rows) * width) * (int64_t)sizeof(float);
}

/* dx (and y) of rows first .. last; sum[width] over dx. */
static void gelu_bias_grad_band(const struct op_call *c, const float *bias, int64_t first,
                                int64_t last, float *sum)
{
    float dy_buffer[CPU_BLOCK], x_buffer[CPU_BLOCK], dx_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    int64_t width = shape_last(&c->in[0].shape);
    for (int64_t i = 0; i < width; i++)
        sum[i] = 0.0f;
    for (int64_t row = first; row < last; row++) {
        for (int64_t column = 0; column < width; column += CPU_BLOCK) {
            int64_t size = block_size(width, column), at = row * width + column;
            const float *dy = block_read(&c->in[0], at, size, dy_buffer);
            const float *in = block_read(&c->in[1], at, size, x_buffer);
            float *dx = block_open(&c->out[0], at, dx_buffer);
            float *y = block_open_given(c, GELU_Y, at, y_buffer);
            if (call_bool(c, 0))
                gelu_tanh_bias_grad_block(dx, y, dy, in, bias + column, sum + column, size);
            else
                gelu_exact_bias_grad_block(dx, y, dy, in, bias + column, sum + column, size);
            block_close(&c->out[0], at, dx, size);
            block_close_given(c, GELU_Y, at, y, size);
        }
    }
}

/* dbias of a block of columns: the bands' sums, and what was there. */
static void gelu_bias_grad_total(const struct op_call *c, const float *partial, int64_t column)
{
    double total[CPU_BLOCK];
    int64_t width = shape_last(&c->in[0].shape), size = block_size(width, column);
    int64_t n_bands = band_count(shape_elems(&c->in[0].shape) / width);
    for (int64_t i = 0; i < size; i++)
        total[i] = call_has(c, 3) ? ref_get(&c->in[3], column + i) : 0.0;
    for (int64_t band = 0; band < n_bands; band++) {
        for (int64_t i = 0; i < size; i++)
            total[i] += (double)partial[band * width + column + i];
    }
    for (int64_t i = 0; i < size; i++)
        ref_set(&c->out[1], column + i, total[i]);
}

static void gelu_bias_grad_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct biased *b = job;
    int64_t width = shape_last(&b->c->in[0].shape);
    int64_t n_rows = shape_elems(&b->c->in[0].shape) / width;
    (void)thread;
    for (int64_t band = first; band < last; band++)
        gelu_bias_grad_band(b->c, b->bias, band * BAND_ROWS, MIN((band + 1) * BAND_ROWS, n_rows),
                            b->partial + band * width);
}

static void gelu_bias_grad_totals(const void *job, int64_t first, int64_t last, int thread)
{
    const struct biased *b = job;
    (void)thread;
    for (int64_t i_block = first; i_block < last; i_block++)
        gelu_bias_grad_total(b->c, b->partial, i_block * CPU_BLOCK);
}

static enum status gelu_bias_grad_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t width = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / width;
    int64_t n_bands = band_count(n_rows);
    struct biased b = {c, block_read(&c->in[2], 0, width, x->workspace),
                       (float *)x->workspace + bias_floats(&c->in[2])};
    cpu_loop(x, n_bands, BAND_ROWS * width, gelu_bias_grad_bands, &b);
    cpu_loop(x, block_count(width), CPU_BLOCK * n_bands, gelu_bias_grad_totals, &b);
    return OK;
}

/* ---- reference ------------------------------------------------------------------------------ */

static enum status silu_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, ref_silu(ref_get(&c->in[0], i)));
    return OK;
}

static enum status silu_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, ref_get(&c->in[0], i) * ref_silu_slope(ref_get(&c->in[1], i)));
    return OK;
}

static enum status gelu_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, ref_gelu(ref_get(&c->in[0], i), call_bool(c, 0)));
    return OK;
}

static enum status gelu_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double slope = ref_gelu_slope(ref_get(&c->in[1], i), call_bool(c, 0));
        ref_set(&c->out[0], i, ref_get(&c->in[0], i) * slope);
    }
    return OK;
}

static enum status gelu_bias_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t width = shape_last(&c->out[0].shape);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double z = ref_get(&c->in[0], i) + ref_get(&c->in[1], i % width);
        ref_set(&c->out[0], i, ref_gelu(z, call_bool(c, 0)));
    }
    return OK;
}

static enum status gelu_bias_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t width = shape_last(&c->in[0].shape);
    for (int64_t k = 0; k < width; k++) {
        double sum = call_has(c, 3) ? ref_get(&c->in[3], k) : 0.0;
        for (int64_t i = k; i < shape_elems(&c->in[0].shape); i += width) {
            double z = ref_get(&c->in[1], i) + ref_get(&c->in[2], k);
            double dx = ref_get(&c->in[0], i) * ref_gelu_slope(z, call_bool(c, 0));
            sum += dx;
            ref_set(&c->out[0], i, dx);
            if (GELU_Y < c->n_out)
                ref_set(&c->out[GELU_Y], i, ref_gelu(z, call_bool(c, 0)));
        }
        ref_set(&c->out[1], k, sum);
    }
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

#define KERNELS_OF(op, name, workspace)                           \
    const struct kernel cpu_kernels_##op[] = {                    \
        {"blocked", cpu_declines_f64, workspace, name##_blocked}, \
        {"reference", NULL, NULL, name##_reference},              \
        KERNEL_END,                                               \
    };
#define KERNELS(name, workspace) KERNELS_OF(name, name, workspace)
KERNELS(silu, NULL)
KERNELS(silu_grad, NULL)
KERNELS(gelu, NULL)
KERNELS(gelu_grad, NULL)
KERNELS(gelu_bias, gelu_bias_workspace)
KERNELS(gelu_bias_grad, gelu_bias_grad_workspace)
KERNELS_OF(gelu_bias_with_grad, gelu_bias_grad, gelu_bias_grad_workspace)
