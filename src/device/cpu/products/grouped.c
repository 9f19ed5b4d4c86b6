/* grouped.c: y = x w[e]^T + bias[e] for the rows of each group, and its gradients. A group is an
 * ordinary product whose number of rows is known only when it runs; the workspace is that of one
 * group with all rows. */
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- references ----------------------------------------------------------------------------- */

static enum status reference_forward(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_out = c->in[1].shape.dim[1], n_in = c->in[1].shape.dim[2];
    const int32_t *offsets = c->in[2].data;
    for (int64_t e = 0; e < c->in[1].shape.dim[0]; e++) {
        for (int64_t i = offsets[e] * n_out; i < offsets[e + 1] * n_out; i++) {
            int64_t row = i / n_out, weight = e * n_out + i % n_out;
            double sum = call_has(c, 3) ? ref_get(&c->in[3], weight) : 0.0;
            for (int64_t k = 0; k < n_in; k++)
                sum += ref_get(&c->in[0], row * n_in + k) * ref_get(&c->in[1], weight * n_in + k);
            ref_set(&c->out[0], i, sum);
        }
    }
    return OK;
}

static enum status reference_grad_input(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_out = c->in[1].shape.dim[1], n_in = c->in[1].shape.dim[2];
    const int32_t *offsets = c->in[2].data;
    for (int64_t e = 0; e < c->in[1].shape.dim[0]; e++) {
        for (int64_t i = offsets[e] * n_in; i < offsets[e + 1] * n_in; i++) {
            double sum = 0.0;
            for (int64_t j = 0; j < n_out; j++)
                sum += ref_get(&c->in[0], i / n_in * n_out + j) *
                       ref_get(&c->in[1], (e * n_out + j) * n_in + i % n_in);
            ref_set(&c->out[0], i, sum);
        }
    }
    return OK;
}

static enum status reference_grad_weight(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct shape *dw = &c->out[0].shape;
    int64_t n_out = dw->dim[1], n_in = dw->dim[2];
    const int32_t *offsets = c->in[2].data;
    for (int64_t i = 0; i < shape_elems(dw); i++) {
        int64_t e = i / (n_out * n_in), j = i / n_in % n_out, k = i % n_in;
        double sum = call_has(c, 3) ? ref_get(&c->in[3], i) : 0.0;
        for (int64_t row = offsets[e]; row < offsets[e + 1]; row++)
            sum += ref_get(&c->in[0], row * n_out + j) * ref_get(&c->in[1], row * n_in + k);
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

static enum status reference_sum_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_columns = c->out[0].shape.dim[1];
    const int32_t *offsets = c->in[1].data;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        int64_t e = i / n_columns;
        double sum = call_has(c, 2) ? ref_get(&c->in[2], i) : 0.0;
        for (int64_t row = offsets[e]; row < offsets[e + 1]; row++)
            sum += ref_get(&c->in[0], row * n_columns + i % n_columns);
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

/* ---- products ------------------------------------------------------------------------------- */

static int64_t bias_bytes(const struct op_call *c)
{
    bool converts = call_has(c, 3) && c->in[3].dtype != DTYPE_F32;
    return converts ? (c->in[1].shape.dim[1] + 15) / 16 * 64 : 0;
}

static int64_t forward_workspace(const struct op_call *c, const struct kernel_env *env)
{
    const struct shape *w = &c->in[1].shape;
    return bias_bytes(c) + cpu_gemm_workspace(env, c->in[0].shape.dim[0], w->dim[1], w->dim[2]);
}

static enum status forward(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[1], n_in = c->in[1].shape.dim[2];
    const int32_t *offsets = c->in[2].data;
    for (int64_t e = 0; e < c->in[1].shape.dim[0]; e++) {
        int64_t first = offsets[e], n_rows = offsets[e + 1] - first;
        struct cpu_gemm g = {
            .m = n_rows,
            .n = n_out,
            .k = n_in,
            .a = cpu_matrix_of(&c->in[0], first * n_in, n_in),
            .b = cpu_matrix_transposed(cpu_matrix_of(&c->in[1], e * n_out * n_in, n_in)),
            .c = c->out[0].data,
            .c_dtype = c->out[0].dtype,
            .c_first = first * n_out,
            .c_row = n_out,
        };
        if (call_has(c, 3))
            g.bias = block_read(&c->in[3], e * n_out, n_out, x->workspace);
        if (n_rows > 0)
            cpu_gemm(&x->env, (char *)x->workspace + bias_bytes(c), &g);
    }
    return OK;
}

static int64_t grad_input_workspace(const struct op_call *c, const struct kernel_env *env)
{
    const struct shape *w = &c->in[1].shape;
    return cpu_gemm_workspace(env, c->in[0].shape.dim[0], w->dim[2], w->dim[1]);
}

static enum status grad_input(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[1], n_in = c->in[1].shape.dim[2];
    const int32_t *offsets = c->in[2].data;
    for (int64_t e = 0; e < c->in[1].shape.dim[0]; e++) {
        int64_t first = offsets[e], n_rows = offsets[e + 1] - first;
        struct cpu_gemm g = {
            .m = n_rows,
            .n = n_in,
            .k = n_out,
            .a = cpu_matrix_of(&c->in[0], first * n_out, n_out),
            .b = cpu_matrix_of(&c->in[1], e * n_out * n_in, n_in),
            .c = c->out[0].data,
            .c_dtype = c->out[0].dtype,
            .c_first = first * n_in,
            .c_row = n_in,
        };
        if (n_rows > 0)
            cpu_gemm(&x->env, x->workspace, &g);
    }
    return OK;
}

static int64_t grad_weight_workspace(const struct op_call *c, const struct kernel_env *env)
{
    const struct shape *dw = &c->out[0].shape;
    return cpu_gemm_workspace(env, dw->dim[1], dw->dim[2], c->in[0].shape.dim[0]);
}

static enum status grad_weight(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *dw = &c->out[0];
    int64_t n_out = dw->shape.dim[1], n_in = dw->shape.dim[2], size = dtype_size(dw->dtype);
    const int32_t *offsets = c->in[2].data;
    bool adds = call_has(c, 3);
    if (adds && c->in[3].data != dw->data)
        memcpy(dw->data, c->in[3].data, (size_t)tensor_bytes(dw));
    for (int64_t e = 0; e < dw->shape.dim[0]; e++) {
        int64_t first = offsets[e], n_rows = offsets[e + 1] - first;
        struct cpu_gemm g = {
            .m = n_out,
            .n = n_in,
            .k = n_rows,
            .a = cpu_matrix_transposed(cpu_matrix_of(&c->in[0], first * n_out, n_out)),
            .b = cpu_matrix_of(&c->in[1], first * n_in, n_in),
            .c = dw->data,
            .c_dtype = dw->dtype,
            .c_first = e * n_out * n_in,
            .c_row = n_in,
            .add = adds,
        };
        if (n_rows > 0)
            cpu_gemm(&x->env, x->workspace, &g);
        else if (!adds)
            memset((char *)dw->data + g.c_first * size, 0, (size_t)(n_out * n_in * size));
    }
    return OK;
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Some columns of one group: items are blocks of columns of all groups. */
static void sum_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t n_columns = c->out[0].shape.dim[1], n_blocks = block_count(n_columns);
    const int32_t *offsets = c->in[1].data;
    (void)thread;
    for (int64_t item = first; item < last; item++) {
        int64_t e = item / n_blocks, column = item % n_blocks * CPU_BLOCK;
        int64_t n = block_size(n_columns, column), at = e * n_columns + column;
        float sum[CPU_BLOCK], buffer[CPU_BLOCK];
        if (call_has(c, 2))
            cpu_load_f32(sum, c->in[2].data, c->in[2].dtype, at, n);
        else
            memset(sum, 0, (size_t)n * sizeof(float));
        for (int64_t row = offsets[e]; row < offsets[e + 1]; row++) {
            const float *add = block_read(&c->in[0], row * n_columns + column, n, buffer);
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                sum[i] += add[i];
        }
        cpu_store_f32(c->out[0].data, c->out[0].dtype, at, sum, n);
    }
}

static enum status sum_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct shape *y = &c->out[0].shape;
    int64_t n_items = y->dim[0] * block_count(y->dim[1]);
    int64_t n_elems = shape_elems(&c->in[0].shape);
    cpu_loop(x, n_items, n_elems / MAX(n_items, (int64_t)1), sum_blocks, c);
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_grouped_linear[] = {
    {"product", cpu_declines_f64, forward_workspace, forward},
    {"reference", NULL, NULL, reference_forward},
    KERNEL_END,
};

const struct kernel cpu_kernels_grouped_linear_grad_input[] = {
    {"product", cpu_declines_f64, grad_input_workspace, grad_input},
    {"reference", NULL, NULL, reference_grad_input},
    KERNEL_END,
};

const struct kernel cpu_kernels_grouped_linear_grad_weight[] = {
    {"product", cpu_declines_f64, grad_weight_workspace, grad_weight},
    {"reference", NULL, NULL, reference_grad_weight},
    KERNEL_END,
};

const struct kernel cpu_kernels_group_sum_rows[] = {
    {"blocked", cpu_declines_f64, NULL, sum_rows},
    {"reference", NULL, NULL, reference_sum_rows},
    KERNEL_END,
};
