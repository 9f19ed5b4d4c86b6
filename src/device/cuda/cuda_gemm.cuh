/* cuda_gemm.cuh: row-major matrix products through cuBLASLt, or a plain tiled kernel where cuBLASLt
 * has nothing for the dtypes or the GPU.
 *
 *     c[m, n] = a[m, k] b[k, n] + bias[n] + c[m, n] (when add)
 *
 * The algorithm is the library's first choice for the shape, found once and kept in
 * cuda_libraries.gemm_cache; it depends on shape, dtypes and alignment alone, so that a program's
 * products are the same in every run. The workspace it needs is known when the program is planned.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_GEMM_CUH
#define SNUG_DEVICE_CUDA_CUDA_GEMM_CUH

#include "device/cuda/cuda_support.cuh"

/* Rows of `row` elements; `data` is a buffer's start (256-byte aligned), elements begin `offset`
 * further. Transposed: the memory holds the matrix the other way round ([k, m] for a, [n, k] for
 * b). */
struct cuda_matrix {
    const void *data;
    int64_t offset, row;
    bool transposed;
};

struct cuda_gemm {
    int64_t m, n, k;
    struct cuda_matrix a, b;
    enum dtype dtype; /* of a and b: f32, bf16, f16 */
    void *c;
    int64_t c_offset, c_row;
    enum dtype c_dtype;
    bool add;         /* to what c holds */
    const void *bias; /* [n] of c_dtype; NULL: none */
};

struct cuda_gemm_cache;
struct cuda_gemm_cache *cuda_gemm_cache_new(void); /* NULL: out of memory */
void cuda_gemm_cache_free(struct cuda_gemm_cache *c);

/* Bytes of workspace cuda_gemm takes for it; data pointers are not looked at, but whether there is
 * a bias is. */
int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g);
enum status cuda_gemm(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g);
/* The plain kernel whatever the library has. */
enum status cuda_gemm_tiled(const struct kernel_ctx *x, const struct cuda_gemm *g);

#endif
