/* linear.c: y = x w^T + bias and its two gradients. */
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ref.h"

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
    int64_t n_out = c->out[0].shape.dim[0], n_in = c->out[0].shape.dim[1];
    int64_t n_rows = shape_rows(&c->in[0].shape);
    for (int64_t j = 0; j < n_out; j++) {
        for (int64_t k = 0; k < n_in; k++) {
            double sum = call_has(c, 2) ? ref_get(&c->in[2], j * n_in + k) : 0.0;
            for (int64_t i = 0; i < n_rows; i++)
                sum += ref_get(&c->in[0], i * n_out + j) * ref_get(&c->in[1], i * n_in + k);
            ref_set(&c->out[0], j * n_in + k, sum);
        }
    }
    return OK;
}

const struct kernel cpu_kernels_linear[] = {
    {"reference", NULL, NULL, reference_forward},
    KERNEL_END,
};

const struct kernel cpu_kernels_linear_grad_input[] = {
    {"reference", NULL, NULL, reference_grad_input},
    KERNEL_END,
};

const struct kernel cpu_kernels_linear_grad_weight[] = {
    {"reference", NULL, NULL, reference_grad_weight},
    KERNEL_END,
};
