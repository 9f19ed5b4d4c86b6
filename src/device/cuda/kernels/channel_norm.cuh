/* channel_norm.cuh: norms by channel over the places of a batch or of a sample, and their
 * gradients: what batch_norm.cu and group_norm.cu have in common. */
#ifndef SNUG_DEVICE_CUDA_KERNELS_CHANNEL_NORM_CUH
#define SNUG_DEVICE_CUDA_KERNELS_CHANNEL_NORM_CUH

#include "device/cuda/support/support.cuh"

/* x, gamma, beta -> y, mean, rstd; cuda_channel_norm_workspace. */
enum status channel_norm(const struct kernel_ctx *x, const struct op_call *c,
                         double epsilon) MUST_CHECK;
/* x -> (not y), mean, rstd; with the same workspace. */
enum status channel_norm_statistics(const struct kernel_ctx *x, const struct op_call *c,
                                    double epsilon) MUST_CHECK;
/* dy, x, gamma, mean, rstd -> dx, dgamma, dbeta; cuda_channel_norm_grad_workspace. */
enum status channel_norm_grad(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;
/* x, gamma, beta, mean, variance -> y */
enum status channel_norm_given(const struct kernel_ctx *x, const struct op_call *c,
                               double epsilon) MUST_CHECK;

#endif
