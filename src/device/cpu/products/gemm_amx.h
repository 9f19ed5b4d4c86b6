/* gemm_amx.h: cpu_gemm for two matrices in bf16, with the tile instructions (AMX) of processors
 * that have them, where the build may use them. The contract is gemm.h's. */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_GEMM_AMX_H
#define SNUG_DEVICE_CPU_PRODUCTS_GEMM_AMX_H

#include "device/cpu/products/gemm_avx512.h"

#ifdef __cplusplus
extern "C" {
#endif

#if CPU_GEMM_AVX512 && defined(__AMX_BF16__) && defined(__linux__)
#define CPU_GEMM_AMX 1
#else
#define CPU_GEMM_AMX 0
#endif

/* The system lets this process use the tiles; asked once. */
bool cpu_gemm_amx_usable(void);

/* Bytes for products of at most this size, whatever C's storage. */
int64_t cpu_gemm_amx_workspace(int n_threads, int64_t m, int64_t n, int64_t k);

/* g->a and g->b are bf16. */
void cpu_gemm_amx(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g);

#ifdef __cplusplus
}
#endif
#endif
