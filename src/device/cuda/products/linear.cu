/* linear.cu: y = x w^T + bias + residual and its two gradients, through cuBLASLt.
 *
 * A residual, and the gradient that a weight gradient is added to, are the product's third matrix:
 * read once while the result is written. Either may lie where the result goes. Bias gradients and
 * activations are ops of their own: gemm.h says what fusing them would cost.
 */
#include "device/cuda/products/gemm.h"
#include "device/cuda/support/support.cuh"

template <struct cuda_gemm (*OF)(const struct op_call *)>
static enum status product(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cuda_gemm g = OF(c);
    return cuda_gemm(x, x->workspace, &g);
}

template <struct cuda_gemm (*OF)(const struct op_call *)>
static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cuda_gemm g = OF(c);
    return cuda_gemm_tiled(x, &g);
}

CUDA_RUN(linear, cublaslt, product<linear_product>)
CUDA_RUN(linear, plain, plain<linear_product>)

CUDA_RUN(linear_grad_input, cublaslt, product<linear_grad_input_product>)
CUDA_RUN(linear_grad_input, plain, plain<linear_grad_input_product>)

CUDA_RUN(linear_grad_weight, cublaslt, product<linear_grad_weight_product>)
CUDA_RUN(linear_grad_weight, plain, plain<linear_grad_weight_product>)
