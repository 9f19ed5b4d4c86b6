/* softmax.c: softmax along the last axis, and its gradient. A row at a time; 16-bit rows go through
 * f32 rows in the workspace (one slice for each thread). */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"

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

struct rows {
    const struct kernel_ctx *x;
    const struct op_call *c;
};

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

static void softmax_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct rows *r = job;
    const struct op_call *c = r->c;
    int64_t n = shape_last(&c->out[0].shape);
    float *buffer = (float *)r->x->workspace + row_step(c) * thread;
    for (int64_t row = first; row < last; row++) {
        const float *from = block_read(&c->in[0], row * n, n, buffer);
        float *to = block_open(&c->out[0], row * n, buffer);
        softmax_row(to, from, n);
        block_close(&c->out[0], row * n, to, n);
    }
}

enum { EXP_COST = 4 }; /* of an exponential, in additions */

static enum status softmax_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows r = {x, c};
    cpu_loop(x, shape_rows(&c->out[0].shape), shape_last(&c->out[0].shape) * EXP_COST, softmax_some,
             &r);
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

static void softmax_grad_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct rows *r = job;
    const struct op_call *c = r->c;
    int64_t n = shape_last(&c->out[0].shape);
    float *buffer = (float *)r->x->workspace + row_step(c) * 2 * thread;
    for (int64_t row = first; row < last; row++) {
        const float *dy = block_read(&c->in[0], row * n, n, buffer);
        const float *y = block_read(&c->in[1], row * n, n, buffer + row_step(c));
        float *dx = block_open(&c->out[0], row * n, buffer);
        softmax_grad_row(dx, dy, y, n);
        block_close(&c->out[0], row * n, dx, n);
    }
}

static enum status softmax_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows r = {x, c};
    cpu_loop(x, shape_rows(&c->out[0].shape), shape_last(&c->out[0].shape), softmax_grad_some, &r);
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
