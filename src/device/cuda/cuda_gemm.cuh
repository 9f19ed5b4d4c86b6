/* cuda_gemm.cuh: cuda_gemm.h for kernel files. */
#ifndef SNUG_DEVICE_CUDA_CUDA_GEMM_CUH
#define SNUG_DEVICE_CUDA_CUDA_GEMM_CUH

#include "device/cuda/cuda_gemm.h"
#include "device/cuda/cuda_support.cuh"

#endif
