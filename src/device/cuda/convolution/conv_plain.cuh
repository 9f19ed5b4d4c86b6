/* conv_plain.cuh: convolutions and their gradients without a library: every dtype, GPU, window and
 * size. Slow, and what cuDNN's results are compared with. */
#ifndef SNUG_DEVICE_CUDA_CONVOLUTION_CONV_PLAIN_CUH
#define SNUG_DEVICE_CUDA_CONVOLUTION_CONV_PLAIN_CUH

#include "device/cuda/support/support.cuh"

/* Any of the three ops; weight gradients want cuda_conv_plain_workspace. */
enum status conv_plain(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;

#endif
