/* product.h: matrix products as the CUDA kernels describe them, and the products of the linear ops
 * and of the output projection with its loss. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_PRODUCT_H
#define SNUG_DEVICE_CUDA_DECLARED_PRODUCT_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of `row` elements; `data` is a buffer's start (256-byte aligned), elements begin `offset`
 * further. Transposed: the memory holds the matrix the other way round ([k, m] for a, [n, k] for
 * b). */
struct cuda_matrix {
    const void *data;
    int64_t offset, row;
    bool transposed;
};

/* Zero what is not wanted. Pointers are not followed when workspace is asked for, but it matters
 * which are NULL: cuda_gemm_planned() stands for those not known yet. */
struct cuda_gemm {
    int64_t m, n, k;
    struct cuda_matrix a, b;
    enum dtype dtype; /* of a and b: f32, bf16, f16 */
    void *c;
    int64_t c_offset, c_row;
    enum dtype c_dtype;   /* of c, residual and bias */
    bool add;             /* to what c holds */
    const void *residual; /* added instead; laid out as c, same offset and rows; not with add */
    const void *bias;     /* [n], a buffer's start */
};

/* The pointer, or while planning one that only says that it will be there. */
static inline void *cuda_gemm_planned(const void *p)
{
    return p ? (void *)(uintptr_t)p : (void *)(uintptr_t)256;
}

/* Why the library does not take a product; NULL: it does. Its workspace in bytes. Through the GPU's
 * answers (gpu_model.h). */
const char *product_declines(const struct kernel_env *env, const struct cuda_gemm *g);
int64_t product_workspace(const struct kernel_env *env, const struct cuda_gemm *g);

/* The workspace that a product is given when it is planned, in bytes: by its shape and the GPU, so
 * that a plan needs no library to be exact. cuBLASLt chooses among the algorithms that do with it.
 */
enum { PRODUCT_WORKSPACE_MOST = 32 << 20, PRODUCT_ALIGN = 256 };
int64_t product_allowance(const struct gpu_model *gpu, const struct cuda_gemm *g);

/* The plain kernels, whatever the library has; they need no workspace. */
enum { PRODUCT_TILE = 16 };
const char *cuda_gemm_tiled_declines(const struct cuda_gemm *g);

/* Products of so few terms are bound by writing the result: a kernel of their own makes them, and
 * some of their rows as well. Rows of dw that a block has. */
enum { OUTER_TERMS = 16, OUTER_BLOCK_ROWS = 16 };

/* y[rows, n_out] = x[rows, n_in] w[n_out, n_in]^T + bias + residual[rows, n_out] */
struct cuda_gemm linear_product(const struct op_call *c);
/* dx[rows, n_in] = dy[rows, n_out] w[n_out, n_in] */
struct cuda_gemm linear_grad_input_product(const struct op_call *c);
/* dw[n_out, n_in] = dy[rows, n_out]^T x[rows, n_in] (+ acc), or some of its rows */
struct cuda_gemm linear_grad_weight_product(const struct op_call *c);

#ifdef __cplusplus
}
#endif
#endif
