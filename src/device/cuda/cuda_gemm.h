/* cuda_gemm.h: row-major matrix products through cuBLASLt with what is done to the result on the
 * way out, or by plain kernels where cuBLASLt has nothing for the dtypes or the GPU.
 *
 *     z[m, n] = a[m, k] b[k, n] + bias[n] + (add: c, or residual)[m, n]
 *
 *     CUDA_EPILOGUE_NONE        c = z
 *     CUDA_EPILOGUE_GELU        c = gelu(z), tanh form; aux = z where there is an aux
 *     CUDA_EPILOGUE_GELU_GRAD   c = z gelu'(aux)
 *
 *     bias_grad[m] = sum over k of a[m, k] (+ what it holds, with bias_grad_add)
 *
 * The last is the bias gradient of a layer whose weight gradient is the product: a is the
 * transposed gradient of its output.
 *
 * What the library cannot do on the way out a small kernel does after it: then z is rounded to c's
 * dtype in between. GELU in f32 is always done by our kernel, the library's has an error of 1e-4.
 *
 * The algorithm is found once for a shape and kept in cuda_libraries.gemm_cache: the library's
 * first proposal, or the fastest of several by measurement (cuda_gemm_search.h). The workspace is
 * known when the program is planned, and a product that was planned runs as it was planned.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_GEMM_H
#define SNUG_DEVICE_CUDA_CUDA_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/cuda_libraries.h"
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

enum cuda_epilogue { CUDA_EPILOGUE_NONE, CUDA_EPILOGUE_GELU, CUDA_EPILOGUE_GELU_GRAD };

/* Zero what is not wanted. Pointers are not followed when workspace is asked for, but it matters
 * which are NULL: cuda_gemm_planned() stands for those not known yet. */
struct cuda_gemm {
    int64_t m, n, k;
    struct cuda_matrix a, b;
    enum dtype dtype; /* of a and b: f32, bf16, f16 */
    void *c;
    int64_t c_offset, c_row;
    enum dtype c_dtype;   /* of c and of everything below */
    bool add;             /* to what c holds */
    const void *residual; /* added instead; laid out as c, same offset and rows; not with add */
    const void *bias;     /* [n] */
    enum cuda_epilogue epilogue;
    void *aux; /* [m, n], a buffer's start; written by GELU (may be NULL), read by GELU_GRAD */
    int64_t aux_row;
    void *bias_grad; /* [m] */
    bool bias_grad_add;
};

/* The pointer, or while planning one that only says that it will be there. */
static inline void *cuda_gemm_planned(const void *p)
{
    return p ? (void *)(uintptr_t)p : (void *)(uintptr_t)256;
}

struct cuda_gemm_cache;
struct cuda_gemm_cache *cuda_gemm_cache_new(void); /* NULL: out of memory */
void cuda_gemm_cache_free(struct cuda_gemm_cache *c);
void cuda_gemm_cache_clear(struct cuda_gemm_cache *c); /* nothing planned so far may run after it */

/* Bytes of workspace for cuda_gemm and for cuda_gemm_tiled. */
int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g);
int64_t cuda_gemm_tiled_workspace(const struct kernel_env *env, const struct cuda_gemm *g);
enum status cuda_gemm(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g);
/* The plain kernels whatever the library has. */
enum status cuda_gemm_tiled(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g);

/* What of the product the library does itself, for tests and reports: bits of enum
 * cuda_gemm_part; -1: it does not do it at all. */
enum cuda_gemm_part {
    CUDA_GEMM_BIAS = 1,
    CUDA_GEMM_EPILOGUE = 2,
    CUDA_GEMM_BIAS_GRAD = 4,
};
int cuda_gemm_fused(const struct kernel_env *env, const struct cuda_gemm *g);

#ifdef __cplusplus
}
#endif
#endif
