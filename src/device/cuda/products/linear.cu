/* linear.cu: y = x w^T + bias + residual and its two gradients, through cuBLASLt.
 *
 * A residual, and the gradient that a weight gradient is added to, are the product's third matrix:
 * read once while the result is written. Either may lie where the result goes. Bias gradients and
 * activations are ops of their own: gemm.h says what fusing them would cost.
 */
#include "device/cuda/products/gemm.h"
#include "device/cuda/support/support.cuh"

/* y[rows, n_out] = x[rows, n_in] w[n_out, n_in]^T + bias + residual[rows, n_out] */
static struct cuda_gemm forward_of(const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    struct cuda_gemm g = {};
    g.m = shape_elems(&c->out[0].shape) / n_out;
    g.n = n_out;
    g.k = n_in;
    g.a = {c->in[0].data, 0, n_in, false};
    g.b = {c->in[1].data, 0, n_in, true};
    g.dtype = c->in[0].dtype;
    g.c = c->out[0].data;
    g.c_row = n_out;
    g.c_dtype = c->out[0].dtype;
    /* At plan time there are no addresses, yet the choice must know what comes. */
    if (call_has(c, 2))
        g.bias = cuda_gemm_planned(c->in[2].data);
    if (call_has(c, 3))
        g.residual = cuda_gemm_planned(c->in[3].data);
    return g;
}

/* dx[rows, n_in] = dy[rows, n_out] w[n_out, n_in] */
static struct cuda_gemm grad_input_of(const struct op_call *c)
{
    int64_t n_out = c->in[1].shape.dim[0], n_in = c->in[1].shape.dim[1];
    struct cuda_gemm g = {};
    g.m = shape_elems(&c->out[0].shape) / n_in;
    g.n = n_in;
    g.k = n_out;
    g.a = {c->in[0].data, 0, n_out, false};
    g.b = {c->in[1].data, 0, n_in, false};
    g.dtype = c->in[0].dtype;
    g.c = c->out[0].data;
    g.c_row = n_in;
    g.c_dtype = c->out[0].dtype;
    return g;
}

/* dw[n_out, n_in] = dy[rows, n_out]^T x[rows, n_in] (+ acc) */
static struct cuda_gemm grad_weight_of(const struct op_call *c)
{
    int64_t n_out = c->out[0].shape.dim[0], n_in = c->out[0].shape.dim[1];
    struct cuda_gemm g = {};
    g.m = n_out;
    g.n = n_in;
    g.k = shape_rows(&c->in[0].shape);
    g.a = {c->in[0].data, 0, n_out, true};
    g.b = {c->in[1].data, 0, n_in, false};
    g.dtype = c->in[0].dtype;
    g.c = c->out[0].data;
    g.c_row = n_in;
    g.c_dtype = c->out[0].dtype;
    if (call_has(c, 2))
        g.residual = cuda_gemm_planned(c->in[2].data);
    return g;
}

template <struct cuda_gemm (*OF)(const struct op_call *)>
static const char *product_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = cuda_declines_f64(c, env);
    if (why)
        return why;
    struct cuda_gemm g = OF(c);
    return cuda_gemm_declines(env, &g);
}

template <struct cuda_gemm (*OF)(const struct op_call *)>
static int64_t workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct cuda_gemm g = OF(c);
    return cuda_gemm_workspace(env, &g);
}

template <struct cuda_gemm (*OF)(const struct op_call *)>
static enum status product(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cuda_gemm g = OF(c);
    return cuda_gemm(x, x->workspace, &g);
}

template <struct cuda_gemm (*OF)(const struct op_call *)>
static const char *plain_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = cuda_declines_f64(c, env);
    if (why)
        return why;
    struct cuda_gemm g = OF(c);
    return cuda_gemm_tiled_declines(&g);
}

template <struct cuda_gemm (*OF)(const struct op_call *)>
static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cuda_gemm g = OF(c);
    return cuda_gemm_tiled(x, &g);
}

extern "C" const struct kernel cuda_kernels_linear[] = {
    {"cublaslt", product_declines<forward_of>, workspace<forward_of>, product<forward_of>},
    {"plain", plain_declines<forward_of>, NULL, plain<forward_of>},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_linear_grad_input[] = {
    {"cublaslt", product_declines<grad_input_of>, workspace<grad_input_of>, product<grad_input_of>},
    {"plain", plain_declines<grad_input_of>, NULL, plain<grad_input_of>},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_linear_grad_weight[] = {
    {"cublaslt", product_declines<grad_weight_of>, workspace<grad_weight_of>,
     product<grad_weight_of>},
    {"plain", plain_declines<grad_weight_of>, NULL, plain<grad_weight_of>},
    KERNEL_END,
};
