/* gemm_library.cuh: one GEMM in cuBLASLt's terms; inside of the cuda_gemm family.
 *
 * The library is column-major: it sees every matrix transposed, so it is asked for c^T = b^T a^T,
 * where b's memory is its operand A and a's its operand B. Its rows of D are our columns: its bias
 * has n elements as ours.
 */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_GEMM_LIBRARY_CUH
#define SNUG_DEVICE_CUDA_PRODUCTS_GEMM_LIBRARY_CUH

#include "device/cuda/products/gemm.h"
#include "device/cuda/support/support.cuh"

enum { GEMM_ALIGN = PRODUCT_ALIGN };

/* Bytes that an algorithm may want: while algorithms are searched for, the most there is. */
static inline int64_t gemm_workspace_most(const struct cuda_libraries *l, const struct cuda_gemm *g)
{
    return l->search ? (int64_t)PRODUCT_WORKSPACE_MOST : product_allowance(&l->gpu, g);
}

/* What the choice of an algorithm depends on. Compared as bytes: no padding may stay undefined. */
struct gemm_key {
    int64_t m, n, k, a_row, b_row, c_row;
    int32_t a_align, b_align, c_align;
    int32_t dtype, c_dtype;
    int32_t flags; /* enum gemm_flag */
};

enum gemm_flag {
    GEMM_A_TRANSPOSED = 1,
    GEMM_B_TRANSPOSED = 2,
    GEMM_ADD = 4, /* c or a residual */
    GEMM_BIAS = 8,
    GEMM_TF32 = 16,
};

struct gemm_choice {
    struct gemm_key key;
    bool used;
    bool found;       /* the library has an algorithm */
    bool bias_inside; /* and adds the bias itself, where there is one */
    int64_t workspace;
    cublasLtMatmulAlgo_t algorithm;
};

/* The library's descriptions of a product. */
struct gemm_described {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
};

struct gemm_key gemm_key_of(const struct cuda_libraries *l, const struct cuda_gemm *g);

/* The library's proposals for the product, with the bias or without it, its first choice first;
 * none when it has nothing. */
enum status gemm_propose(const struct cuda_libraries *l, const struct cuda_gemm *g,
                         bool bias_inside, cublasLtMatmulHeuristicResult_t *out, int n_most,
                         int *n) MUST_CHECK;

/* One of those proposals; the key stays. */
void gemm_choice_set(struct gemm_choice *c, bool bias_inside,
                     const cublasLtMatmulHeuristicResult_t *r);
void gemm_choice_take(struct gemm_choice *c, const struct gemm_choice *from);

/* The product with the choice's algorithm, and the bias if that leaves it out. */
enum status gemm_run(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g,
                     const struct gemm_choice *c) MUST_CHECK;

/* Replaces the library's first choice by the fastest, remembered or found by trying
 * (gemm_search.cu). */
enum status gemm_search(const struct kernel_env *env, const struct cuda_gemm *g,
                        struct gemm_choice *choice) MUST_CHECK;

/* Adds the bias to c, which holds the rest (gemm_bias.cu). */
enum status gemm_add_bias(const struct kernel_ctx *x, const struct cuda_gemm *g) MUST_CHECK;

#endif
