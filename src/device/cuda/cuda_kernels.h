/* cuda_kernels.h: the CUDA kernel lists by op, from ops.def's fourth column.
 *
 * Conventions of every CUDA kernel:
 *  1. f32, bf16 and f16 storage, f32 arithmetic; f64 is declined.
 *  2. run() enqueues on the queue it is given and returns: no synchronisation, no allocation,
 * nothing read from device memory, nothing that changes from step to step in a launch's arguments.
 * It can be captured in a CUDA graph.
 *  3. Sums in an order that depends only on shapes and the GPU: two runs give the same bits.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_KERNELS_H
#define SNUG_DEVICE_CUDA_CUDA_KERNELS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OP(name, family, cpu, cuda) extern const struct kernel cuda_kernels_##name[];
#include "graph/ops.def"
#undef OP

/* The list for an op; NULL when CUDA has no kernels for it. */
const struct kernel *cuda_kernels(enum op_id op);

/* device_ops.batch: the function that runs several calls of the kernel in few launches, or NULL. */
kernel_batch *cuda_batch(const struct kernel *k);
kernel_batch cuda_batch_adamw, cuda_batch_adamw_8bit, cuda_batch_sgd, cuda_batch_sgd_momentum,
    cuda_batch_accumulate;

/* declines() for kernels that take f32, bf16 and f16 but not f64. */
const char *cuda_declines_f64(const struct op_call *c, const struct kernel_env *env);
/* declines() for kernels that want every float tensor present to be bf16, or every one f16, apart
 * from f32 statistics and parameters. */
const char *cuda_declines_unless_half(const struct op_call *c, const struct kernel_env *env);

#ifdef __cplusplus
}
#endif
#endif
