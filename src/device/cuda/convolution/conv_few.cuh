/* conv_few.cuh: convolutions that add up few terms; see conv_few.cu. */
#ifndef SNUG_DEVICE_CUDA_CONVOLUTION_CONV_FEW_CUH
#define SNUG_DEVICE_CUDA_CONVOLUTION_CONV_FEW_CUH

#include "device/cuda/support/support.cuh"

/* conv, where cuda_conv_few_declines has nothing against it. */
enum status conv_few(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;

#endif
