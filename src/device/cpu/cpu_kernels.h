/* cpu_kernels.h: the CPU's kernel lists by op (from ops.def), and what the kernel files share.
 *
 * Conventions of every CPU kernel:
 *  1. f32, bf16 and f16 storage, f32 arithmetic; sums over long axes in f32 blocks or f64, never in
 *     the storage dtype.
 *  2. Work is split over threads so that every output element is computed by one thread in an order
 *     that depends only on shapes and thread count: two runs give the same bits.
 *  3. Loops are written for the compiler to vectorise (#pragma omp simd, restrict pointers).
 */
#ifndef SNUG_DEVICE_CPU_CPU_KERNELS_H
#define SNUG_DEVICE_CPU_CPU_KERNELS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OP(name, family, cpu, cuda) extern const struct kernel cpu_kernels_##name[];
#include "graph/ops.def"
#undef OP

/* The list for an op; NULL when the CPU has no kernels for it. */
const struct kernel *cpu_kernels(enum op_id op);

/* Rows of any 16-bit or 32-bit float dtype as f32, and back (n elements). */
void cpu_load_f32(float *SNUG_RESTRICT dst, const void *src, enum dtype dtype, int64_t offset,
                  int64_t n);
void cpu_store_f32(void *dst, enum dtype dtype, int64_t offset, const float *SNUG_RESTRICT src,
                   int64_t n);

/* declines() for kernels that take f32, bf16 and f16 but not f64. */
const char *cpu_declines_f64(const struct op_call *c, const struct kernel_env *env);

#ifdef __cplusplus
}
#endif
#endif
