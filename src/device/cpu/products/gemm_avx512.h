/* gemm_avx512.h: cpu_gemm for processors with AVX-512, where the build may use it. The contract
 * is gemm.h's. */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_GEMM_AVX512_H
#define SNUG_DEVICE_CPU_PRODUCTS_GEMM_AVX512_H

#include "device/cpu/products/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define CPU_GEMM_AVX512 1
#else
#define CPU_GEMM_AVX512 0
#endif

/* Bytes for products of at most this size, whatever their storage. */
int64_t cpu_gemm_avx512_workspace(int n_threads, int64_t m, int64_t n, int64_t k);

void cpu_gemm_avx512(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g);

#ifdef __cplusplus
}
#endif
#endif
