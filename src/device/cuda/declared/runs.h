/* runs.h: what runs the kernels of kernels.def. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_RUNS_H
#define SNUG_DEVICE_CUDA_DECLARED_RUNS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LIST(op, ...)                         __VA_ARGS__
#define KERNEL(op, name, declines, workspace) kernel_run cuda_run_##op##_##name;
#include "device/cuda/declared/kernels.def"
#undef LIST
#undef KERNEL

#ifdef __cplusplus
}
#endif
#endif
