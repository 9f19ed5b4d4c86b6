/* balance.c: what the losses of routing are made of. */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"
#include "ops/expert_support.h"

/* ---- loads ---------------------------------------------------------------------------------- */

static enum status sizes_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int32_t *offsets = c->in[0].data;
    for (int64_t e = 0; e < shape_elems(&c->out[0].shape); e++)
        ref_set(&c->out[0], e, (double)(offsets[e + 1] - offsets[e]));
    return OK;
}

static enum status count_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int32_t *target = c->in[0].data;
    int64_t n = 0;
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++)
        n += target[i] != call_int(c, 0);
    ref_set(&c->out[0], 0, (double)n);
    return OK;
}

static enum status balance_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double sum = 0.0;
    for (int64_t e = 0; e < shape_elems(&c->in[0].shape); e++)
        sum += ref_get(&c->in[0], e) * ref_get(&c->in[1], e);
    ref_set(&c->out[0], 0, call_float(c, BALANCE_FACTOR) * ref_get(&c->in[2], 0) * sum);
    return OK;
}

/* ---- squares of log-sum-exps ---------------------------------------------------------------- */

static double lse_reference(const struct tensor *z, int64_t row)
{
    int64_t n = z->shape.dim[1];
    double top = ref_get(z, row * n);
    for (int64_t e = 1; e < n; e++)
        top = fmax(top, ref_get(z, row * n + e));
    double sum = exp(ref_get(z, row * n) - top);
    for (int64_t e = 1; e < n; e++)
        sum += exp(ref_get(z, row * n + e) - top);
    return top + log(sum);
}

static enum status square_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double sum = 0.0;
    for (int64_t row = 0; row < c->in[0].shape.dim[0]; row++) {
        double lse = lse_reference(&c->in[0], row);
        sum += lse * lse;
    }
    ref_set(&c->out[0], 0, call_float(c, BALANCE_FACTOR) * ref_get(&c->in[1], 0) * sum);
    return OK;
}

static enum status square_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *z = &c->in[1];
    int64_t n = z->shape.dim[1];
    double d = 2.0 * ref_get(&c->in[0], 0) * call_float(c, BALANCE_FACTOR) * ref_get(&c->in[2], 0);
    for (int64_t row = 0; row < z->shape.dim[0]; row++) {
        double lse = lse_reference(z, row);
        for (int64_t i = row * n; i < (row + 1) * n; i++)
            ref_set(&c->out[0], i, d * lse * exp(ref_get(z, i) - lse));
    }
    return OK;
}

static float row_lse(const float *z, int64_t n)
{
    float top = cpu_max_of(z, n), sum = cpu_expf(z[0] - top);
#pragma omp simd reduction(+ : sum)
    for (int64_t e = 1; e < n; e++)
        sum += cpu_expf(z[e] - top);
    return top + logf(sum);
}

struct rows {
    const struct op_call *c;
    float *squares;
};

static void square_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct rows *r = job;
    int64_t n = r->c->in[0].shape.dim[1];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        float lse = row_lse((const float *)r->c->in[0].data + row * n, n);
        r->squares[row] = lse * lse;
    }
}

static int64_t square_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[0].shape.dim[0] * (int64_t)sizeof(float);
}

static enum status square_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows r = {c, x->workspace};
    int64_t n_rows = c->in[0].shape.dim[0];
    double sum = 0.0;
    cpu_loop(x, n_rows, c->in[0].shape.dim[1], square_some, &r);
    for (int64_t row = 0; row < n_rows; row++)
        sum += (double)r.squares[row];
    ref_set(&c->out[0], 0, call_float(c, BALANCE_FACTOR) * ref_get(&c->in[1], 0) * sum);
    return OK;
}

static void square_grad_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t n = c->in[1].shape.dim[1];
    double d = 2.0 * ref_get(&c->in[0], 0) * call_float(c, BALANCE_FACTOR) * ref_get(&c->in[2], 0);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *z = (const float *)c->in[1].data + row * n;
        float *dz = (float *)c->out[0].data + row * n;
        float lse = row_lse(z, n), factor = (float)d * lse;
#pragma omp simd
        for (int64_t e = 0; e < n; e++)
            dz[e] = factor * cpu_expf(z[e] - lse);
    }
}

static enum status square_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, c->in[1].shape.dim[0], c->in[1].shape.dim[1], square_grad_some, c);
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_group_sizes[] = {
    {"reference", NULL, NULL, sizes_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_count_labels[] = {
    {"reference", NULL, NULL, count_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_balance_loss[] = {
    {"reference", NULL, NULL, balance_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_square_lse[] = {
    {"rows", cpu_declines_f64, square_workspace, square_rows},
    {"reference", NULL, NULL, square_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_square_lse_grad[] = {
    {"rows", cpu_declines_f64, NULL, square_grad_rows},
    {"reference", NULL, NULL, square_grad_reference},
    KERNEL_END,
};
