/* linear.c: y = x w^T + bias + residual and its two gradients. */
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

static enum status reference_forward(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    int64_t n_rows = shape_elems(&c->out[0].shape) / n_out;
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j = 0; j < n_out; j++) {
            double sum = call_has(c, 2) ? ref_get(&c->in[2], j) : 0.0;
            for (int64_t k = 0; k < n_in; k++)
                sum += ref_get(&c->in[0], i * n_in + k) * ref_get(&c->in[1], j * n_in + k);
            if (call_has(c, 3))
                sum += ref_get(&c->in[3], i * n_out + j);
            ref_set(&c->out[0], i * n_out + j, sum);
        }
    }
    return OK;
}

static enum status reference_grad_input(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    int64_t n_rows = shape_elems(&c->out[0].shape) / n_in;
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t k = 0; k < n_in; k++) {
            double sum = 0.0;
            for (int64_t j = 0; j < n_out; j++)
                sum += ref_get(&c->in[0], i * n_out + j) * ref_get(&c->in[1], j * n_in + k);
            ref_set(&c->out[0], i * n_in + k, sum);
        }
    }
    return OK;
}

static enum status reference_grad_weight(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_out = shape_last(&c->in[0].shape), n_in = c->out[0].shape.dim[1];
    int64_t n_rows = shape_rows(&c->in[0].shape), first = c->first_element / MAX(n_in, 1);
    for (int64_t j = 0; j < c->out[0].shape.dim[0]; j++) {
        for (int64_t k = 0; k < n_in; k++) {
            double sum = call_has(c, 2) ? ref_get(&c->in[2], j * n_in + k) : 0.0;
            for (int64_t i = 0; i < n_rows; i++)
                sum += ref_get(&c->in[0], i * n_out + first + j) * ref_get(&c->in[1], i * n_in + k);
            ref_set(&c->out[0], j * n_in + k, sum);
        }
    }
    return OK;
}

static int64_t bias_bytes(const struct op_call *c)
{
    bool converts = call_has(c, 2) && c->in[2].dtype != DTYPE_F32;
    return converts ? (c->in[1].shape.dim[0] + 15) / 16 * 64 : 0;
}

static int64_t product_workspace(const struct op_call *c, const struct kernel_env *env)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    return bias_bytes(c) +
           cpu_gemm_workspace(env, shape_elems(&c->in[0].shape) / n_in, n_out, n_in);
}

static enum status product(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    struct cpu_gemm g = {
        .m = shape_elems(&c->in[0].shape) / n_in,
        .n = n_out,
        .k = n_in,
        .a = cpu_matrix_of(&c->in[0], 0, n_in),
        .b = cpu_matrix_transposed(cpu_matrix_of(&c->in[1], 0, n_in)),
        .c = c->out[0].data,
        .c_dtype = c->out[0].dtype,
        .c_row = n_out,
    };
    if (call_has(c, 3))
        g.residual = c->in[3].data;
    if (call_has(c, 2))
        g.bias = block_read(&c->in[2], 0, n_out, x->workspace);
    cpu_gemm(&x->env, (char *)x->workspace + bias_bytes(c), &g);
    return OK;
}

static int64_t grad_input_workspace(const struct op_call *c, const struct kernel_env *env)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    return cpu_gemm_workspace(env, shape_elems(&c->in[0].shape) / n_out, n_in, n_out);
}

static enum status grad_input(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    struct cpu_gemm g = {
        .m = shape_elems(&c->in[0].shape) / n_out,
        .n = n_in,
        .k = n_out,
        .a = cpu_matrix_of(&c->in[0], 0, n_out),
        .b = cpu_matrix_of(&c->in[1], 0, n_in),
        .c = c->out[0].data,
        .c_dtype = c->out[0].dtype,
        .c_row = n_in,
    };
    cpu_gemm(&x->env, x->workspace, &g);
    return OK;
}

static int64_t grad_weight_workspace(const struct op_call *c, const struct kernel_env *env)
{
    const struct shape *dw = &c->out[0].shape;
    return cpu_gemm_workspace(env, dw->dim[0], dw->dim[1], shape_rows(&c->in[0].shape));
}

/* dw, or some of its rows: those of as many columns of dy. */
static struct cpu_gemm grad_weight_product(const struct op_call *c)
{
    const struct tensor *dw = &c->out[0], *dy = &c->in[0];
    int64_t first = c->first_element / MAX(dw->shape.dim[1], 1);
    return (struct cpu_gemm){
        .m = dw->shape.dim[0],
        .n = dw->shape.dim[1],
        .k = shape_rows(&dy->shape),
        .a = cpu_matrix_transposed(cpu_matrix_of(dy, first, shape_last(&dy->shape))),
        .b = cpu_matrix_of(&c->in[1], 0, dw->shape.dim[1]),
        .c = dw->data,
        .c_dtype = dw->dtype,
        .c_row = dw->shape.dim[1],
        .add = call_has(c, 2),
    };
}

static const char *grad_weight_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct cpu_gemm g = grad_weight_product(c);
    if (g.m != shape_last(&c->in[0].shape) && !cpu_gemm_is_by_rows(&g))
        return "some rows by themselves might differ from those of the whole";
    return cpu_declines_f64(c, env);
}

static enum status grad_weight(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct tensor *dw = &c->out[0];
    struct cpu_gemm g = grad_weight_product(c);
    if (g.add && c->in[2].data != dw->data)
        memcpy(dw->data, c->in[2].data, (size_t)tensor_bytes(dw));
    cpu_gemm(&x->env, x->workspace, &g);
    return OK;
}

const struct kernel cpu_kernels_linear[] = {
    {"product", cpu_declines_f64, product_workspace, product},
    {"reference", NULL, NULL, reference_forward},
    KERNEL_END,
};

const struct kernel cpu_kernels_linear_grad_input[] = {
    {"product", cpu_declines_f64, grad_input_workspace, grad_input},
    {"reference", NULL, NULL, reference_grad_input},
    KERNEL_END,
};

const struct kernel cpu_kernels_linear_grad_weight[] = {
    {"product", grad_weight_declines, grad_weight_workspace, grad_weight},
    {"reference", NULL, NULL, reference_grad_weight},
    KERNEL_END,
};
