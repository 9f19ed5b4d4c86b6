/* cuda_libraries.h: what the CUDA kernels share on one GPU: library handles, the device's limits,
 * and the matrix products' chosen algorithms.
 *
 * kernel_env.libraries points to one of these. It is made when the device is opened and lives until
 * it is closed; where there is no GPU it is NULL. declines() and
 * workspace() may add to the caches when a program is planned; run() only looks things up in them
 * (or asks the library again: never an allocation of ours).
 * One thread at a time.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_LIBRARIES_H
#define SNUG_DEVICE_CUDA_CUDA_LIBRARIES_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_gemm_cache;
struct cuda_gemm_search;

/* Something a kernel family keeps between calls (built cuDNN plans). The family that sets `data`
 * sets `release`, which the device calls when it closes. */
struct cuda_keep {
    void *data;
    void (*release)(void *data);
};

struct cuda_libraries {
    cublasLtHandle_t cublaslt;
    cudnnHandle_t cudnn; /* its stream is set by the kernels that use it */
    struct cuda_gemm_cache *gemm_cache;
    struct cuda_keep attention, attention_grad, convolution;
    struct cuda_gemm_search *gemm_search; /* NULL unless `search` */
    bool search; /* products by the fastest algorithm that timings find (gemm_search.cu) */
    bool tf32;   /* products of f32 may round their factors to 10 bits of fraction */

    char *cache_folder; /* for what is worth keeping between processes; NULL: nothing is kept */

    int device;           /* CUDA's index of the GPU */
    struct gpu_model gpu; /* kernel_env.gpu points to it */
};

static inline struct cuda_libraries *cuda_libraries_of(const struct kernel_env *env)
{
    return (struct cuda_libraries *)env->libraries;
}

#ifdef __cplusplus
}
#endif
#endif
