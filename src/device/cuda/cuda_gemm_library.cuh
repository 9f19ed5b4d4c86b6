/* cuda_gemm_library.cuh: one product in cuBLASLt's terms; inside of the cuda_gemm family.
 *
 * The library is column-major: it sees every matrix transposed, so it is asked for c^T = b^T a^T,
 * where b's memory is its operand A and a's its operand B. Its rows of D are our columns: its bias
 * has n elements as ours, and the sums of a over k are its BGRADB.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_GEMM_LIBRARY_CUH
#define SNUG_DEVICE_CUDA_CUDA_GEMM_LIBRARY_CUH

#include "device/cuda/cuda_gemm.cuh"

enum { GEMM_ALIGN = 256, GEMM_WORKSPACE_MOST = 32 << 20 };

/* What the choice of an algorithm depends on. Compared as bytes: no padding may stay undefined. */
struct gemm_key {
    int64_t m, n, k, a_row, b_row, c_row, aux_row;
    int32_t a_align, b_align, c_align;
    int32_t dtype, c_dtype;
    int32_t flags; /* enum gemm_flag */
};

enum gemm_flag {
    GEMM_A_TRANSPOSED = 1,
    GEMM_B_TRANSPOSED = 2,
    GEMM_ADD = 4, /* c or a residual */
    GEMM_BIAS = 8,
    GEMM_GELU = 16,
    GEMM_GELU_GRAD = 32,
    GEMM_AUX = 64,
    GEMM_BIAS_GRAD = 128,
    GEMM_BIAS_GRAD_ADD = 256,
    GEMM_TF32 = 512,
};

struct gemm_choice {
    struct gemm_key key;
    bool used;
    bool found; /* the library has an algorithm */
    int inside; /* bits of enum cuda_gemm_part: what the library does itself */
    int64_t workspace;
    cublasLtMatmulAlgo_t algorithm;
};

/* The library's descriptions of a product. */
struct gemm_described {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
};

struct gemm_key gemm_key_of(const struct cuda_libraries *l, const struct cuda_gemm *g);

/* Parts the product has, and whether the library could do exactly these itself. */
int gemm_parts(const struct cuda_gemm *g);
bool gemm_can_be_inside(const struct cuda_gemm *g, int inside);

/* Ways to share the product between the library and our kernels, most in the library first: values
 * for `inside`. Returns how many. */
enum { GEMM_FORMS = 4 };
int gemm_forms(const struct cuda_gemm *g, int forms[GEMM_FORMS]);

enum status gemm_describe(const struct cuda_libraries *l, const struct cuda_gemm *g, int inside,
                          struct gemm_described *out);

/* The library's proposals for the product with the parts `inside`, its favourite first; none when
 * it has nothing. */
enum status gemm_propose(const struct cuda_libraries *l, const struct cuda_gemm *g, int inside,
                         cublasLtMatmulHeuristicResult_t *out, int n_most, int *n);

/* A form of the product with one of the library's proposals; the key stays. */
void gemm_choice_set(struct gemm_choice *c, int inside, const cublasLtMatmulHeuristicResult_t *r);
void gemm_choice_take(struct gemm_choice *c, const struct gemm_choice *from);

/* Bytes of workspace of the whole product by that choice, and the whole product. */
int64_t gemm_choice_workspace(const struct kernel_env *env, const struct cuda_gemm *g,
                              const struct gemm_choice *c);
enum status gemm_run(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g,
                     const struct gemm_choice *c);

/* Replaces the library's first choice by the fastest, remembered or found by trying
 * (cuda_gemm_search.cu). */
enum status gemm_search(const struct kernel_env *env, const struct cuda_gemm *g,
                        struct gemm_choice *choice);

/* The product with the choice's algorithm, without the parts it leaves to others. */
enum status gemm_library_run(const struct cuda_libraries *l, const struct cuda_gemm *g,
                             const struct gemm_choice *choice, void *workspace,
                             cudaStream_t stream);

/* ---- small kernels (cuda_gemm_parts.cu) ----------------------------------------------------- */

/* The bias and the epilogue over c, which holds the product. */
enum status gemm_finish(const struct kernel_ctx *x, const struct cuda_gemm *g, bool with_bias,
                        bool with_epilogue);
int64_t gemm_bias_grad_workspace(const struct kernel_env *env, const struct cuda_gemm *g);
enum status gemm_bias_grad(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g);

#endif
