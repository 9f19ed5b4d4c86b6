/* norm_rows.h: the fast normalisation kernels (norm_rows.c), listed in norm.c. */
#ifndef SNUG_DEVICE_CPU_KERNELS_NORM_ROWS_H
#define SNUG_DEVICE_CPU_KERNELS_NORM_ROWS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CPU_NORM(op)                                                                     \
    int64_t cpu_##op##_workspace(const struct op_call *c, const struct kernel_env *env); \
    enum status cpu_##op(const struct kernel_ctx *x, const struct op_call *c)

CPU_NORM(layer_norm);
CPU_NORM(layer_norm_grad);
CPU_NORM(rms_norm);
CPU_NORM(rms_norm_grad);
CPU_NORM(head_norm);
CPU_NORM(head_norm_grad);

#undef CPU_NORM

#ifdef __cplusplus
}
#endif
#endif
