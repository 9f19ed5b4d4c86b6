/* gemm_search.h: autotuning: the fastest algorithm for a GEMM (compile: max-autotune).
 *
 * The library proposes algorithms in an order of its own; they differ by some percent, by more for
 * unusual shapes. A search runs the first of them on scratch memory, with the bias where they leave
 * it to us, and takes the fastest: when a program is planned, never when it runs. All of them add
 * in a fixed order (the library is asked for no others).
 *
 * What was found is kept in the file `products` of the cache folder, by shape, GPU, driver and
 * library. The file names an algorithm by a hash of the library's description of it, and only what
 * the library proposes again is ever used: nothing of the file reaches the library.
 */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_GEMM_SEARCH_H
#define SNUG_DEVICE_CUDA_PRODUCTS_GEMM_SEARCH_H

#include "device/cuda/products/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_gemm_search; /* the kept results; hangs off cuda_libraries */

/* `identity` names what the results depend on beside the shape. Without a cache folder nothing is
 * kept. */
enum status cuda_gemm_search_open(struct cuda_libraries *l, const char *identity,
                                  cudaStream_t stream) MUST_CHECK;
void cuda_gemm_search_free(struct cuda_gemm_search *s); /* NULL is fine */

/* What a search sees, for bench/gemm_cuda.c. Seconds of one product. */
struct cuda_gemm_found {
    int n_tried;
    double first_s, best_s; /* the library's first choice, the fastest */
};
enum status cuda_gemm_search_try(const struct kernel_env *env, cudaStream_t stream,
                                 const struct cuda_gemm *g, struct cuda_gemm_found *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
