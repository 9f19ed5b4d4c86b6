/* gemm.h: matrix products (GEMM) of row-major matrices: through cuBLASLt, and by plain kernels for
 * what cuBLASLt has no algorithm for. Planning decides between the two (cuda_gemm_declines).
 *
 *     c[m, n] = a[m, k] b[k, n] + bias[n] + (add: c, or residual)[m, n]
 *
 * Where the library does not add the bias itself, a small kernel does after it: then the rest is
 * rounded to c's dtype in between.
 *
 * The library could do more on the way out, and loses on an H200: a bias gradient with the weight
 * gradient (BGRADB) makes that product 20 to 40 % longer, and GELU's gradient with the gradient of
 * the next layer's input (DGELU) takes three to four times as long. One pass of ours over the
 * gradient does both (gelu_bias.cu), so products have no other epilogues.
 *
 * The algorithm is found once for a shape and kept in cuda_libraries.gemm_cache: the library's
 * first proposal, or the fastest of several by measurement (gemm_search.h). The workspace is
 * known when the program is planned: what product_allowance gives, or, where algorithms are
 * searched for, what the one that was found wants. A product that was planned runs as planned.
 */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_GEMM_H
#define SNUG_DEVICE_CUDA_PRODUCTS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/cuda_libraries.h"
#include "device/cuda/declared/product.h"
#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_gemm_cache;
struct cuda_gemm_cache *cuda_gemm_cache_new(void); /* NULL: out of memory */
void cuda_gemm_cache_free(struct cuda_gemm_cache *c);
void cuda_gemm_cache_clear(struct cuda_gemm_cache *c); /* nothing planned so far may run after it */

/* Why the library does not take a product; NULL: it does. It is asked once for a shape. */
const char *cuda_gemm_declines(const struct kernel_env *env, const struct cuda_gemm *g);
/* Bytes of workspace for cuda_gemm. */
int64_t cuda_gemm_workspace(const struct kernel_env *env, const struct cuda_gemm *g);
/* A product that the library takes. */
enum status cuda_gemm(const struct kernel_ctx *x, void *workspace,
                      const struct cuda_gemm *g) MUST_CHECK;

/* The plain kernels, whatever the library has; they need no workspace. */
enum status cuda_gemm_tiled(const struct kernel_ctx *x, const struct cuda_gemm *g) MUST_CHECK;

/* Whether the library adds the bias of a product that it takes, or a kernel of ours after it. */
bool cuda_gemm_adds_bias(const struct kernel_env *env, const struct cuda_gemm *g);

#ifdef __cplusplus
}
#endif
#endif
