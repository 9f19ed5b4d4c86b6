/* softmax.c: softmax along the last axis, and its gradient. A row at a time; 16-bit rows go through
 * f32 rows in the workspace (one slice for each thread). */
#include <math.h>
#include <omp.h>

#include "device/cpu/cpu_block.h"
#include "device/cpu/cpu_math.h"
#include "device/cpu/cpu_ref.h"

/* Floats from one f32 row in the workspace to the next: whole cache lines. */
static int64_t row_step(const struct op_call *c)
{
    return (shape_last(&c->out[0].shape) + 15) / 16 * 16;
}

static int64_t rows_workspace(const struct op_call *c, const struct kernel_env *env, int n_rows)
{
    if (c->out[0].dtype == DTYPE_F32)
        return 0;
    return row_step(c) * n_rows * env->n_threads * (int64_t)sizeof(float);
}

/* Row i_buffer of this thread. */
static float *thread_row(const struct kernel_ctx *x, const struct op_call *c, int n_rows,
                         int i_buffer)
{
    return (float *)x->workspace + row_step(c) * (omp_get_thread_num() * n_rows + i_buffer);
}

/* ---- softmax -------------------------------------------------------------------------------- */

/* y may be x. */
static void softmax_row(float *y, const float *x, int64_t n)
{
    float top = cpu_max_of(x, n), sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = cpu_expf(x[i] - top);
        y[i] = e;
        sum += e;
    }
    float share = 1.0f / sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= share;
}

static int64_t softmax_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return rows_workspace(c, env, 1);
}

static enum status softmax_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->out[0].shape), n_rows = shape_rows(&c->out[0].shape);
#pragma omp parallel for schedule(static) \
    num_threads(x->env.n_threads) if (n * n_rows > CPU_SERIAL / 4)
    for (int64_t row = 0; row < n_rows; row++) {
        float *buffer = thread_row(x, c, 1, 0);
        const float *from = block_read(&c->in[0], row * n, n, buffer);
        float *to = block_open(&c->out[0], row * n, buffer);
        softmax_row(to, from, n);
        block_close(&c->out[0], row * n, to, n);
    }
    return OK;
}

static enum status softmax_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n = shape_last(&c->out[0].shape);
    for (int64_t at = 0; at < shape_elems(&c->out[0].shape); at += n) {
        double top = ref_get(&c->in[0], at), sum = 0.0;
        for (int64_t i = 1; i < n; i++)
            top = fmax(top, ref_get(&c->in[0], at + i));
        for (int64_t i = 0; i < n; i++)
            sum += exp(ref_get(&c->in[0], at + i) - top);
        for (int64_t i = 0; i < n; i++)
            ref_set(&c->out[0], at + i, exp(ref_get(&c->in[0], at + i) - top) / sum);
    }
    return OK;
}

/* ---- gradient ------------------------------------------------------------------------------- */

/* dx may be dy or y. */
static void softmax_grad_row(float *dx, const float *dy, const float *y, int64_t n)
{
    float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++)
        dot += dy[i] * y[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - dot);
}

static int64_t softmax_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return rows_workspace(c, env, 2);
}

static enum status softmax_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->out[0].shape), n_rows = shape_rows(&c->out[0].shape);
#pragma omp parallel for schedule(static) num_threads(x->env.n_threads) if (n * n_rows > CPU_SERIAL)
    for (int64_t row = 0; row < n_rows; row++) {
        float *buffer = thread_row(x, c, 2, 0);
        const float *dy = block_read(&c->in[0], row * n, n, buffer);
        const float *y = block_read(&c->in[1], row * n, n, thread_row(x, c, 2, 1));
        float *dx = block_open(&c->out[0], row * n, buffer);
        softmax_grad_row(dx, dy, y, n);
        block_close(&c->out[0], row * n, dx, n);
    }
    return OK;
}

static enum status softmax_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n = shape_last(&c->out[0].shape);
    for (int64_t at = 0; at < shape_elems(&c->out[0].shape); at += n) {
        double dot = 0.0;
        for (int64_t i = at; i < at + n; i++)
            dot += ref_get(&c->in[0], i) * ref_get(&c->in[1], i);
        for (int64_t i = at; i < at + n; i++)
            ref_set(&c->out[0], i, ref_get(&c->in[1], i) * (ref_get(&c->in[0], i) - dot));
    }
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_softmax[] = {
    {"rows", cpu_declines_f64, softmax_workspace, softmax_rows},
    {"reference", NULL, NULL, softmax_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_softmax_grad[] = {
    {"rows", cpu_declines_f64, softmax_grad_workspace, softmax_grad_rows},
    {"reference", NULL, NULL, softmax_grad_reference},
    KERNEL_END,
};
