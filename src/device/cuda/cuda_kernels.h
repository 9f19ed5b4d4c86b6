/* cuda_kernels.h: the CUDA kernel lists by op (declared/kernels.def), in every build.
 *
 * Conventions of every CUDA kernel:
 *  1. f32, bf16 and f16 storage, f32 arithmetic; f64 is declined.
 *  2. run() enqueues on the queue it is given and returns: no synchronisation, no allocation,
 * nothing read from device memory, nothing that changes from step to step in a launch's arguments.
 * It can be captured in a CUDA graph. In a build without CUDA there is none.
 *  3. Sums in an order that depends only on shapes and the GPU: two runs give the same bits.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_KERNELS_H
#define SNUG_DEVICE_CUDA_CUDA_KERNELS_H

#include "device/cuda/declared/declared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The list for an op; NULL when CUDA has no kernels for it. */
const struct kernel *cuda_kernels(enum op_id op);

/* device_ops.batch: the function that runs several calls of the kernel in few launches, or NULL.
 * In a build without CUDA one that fails. */
kernel_batch *cuda_batch(const struct kernel *k);
kernel_batch cuda_batch_adamw, cuda_batch_adamw_8bit, cuda_batch_lion, cuda_batch_lion_8bit,
    cuda_batch_muon_update, cuda_batch_sgd, cuda_batch_sgd_momentum, cuda_batch_accumulate;

#ifdef __cplusplus
}
#endif
#endif
