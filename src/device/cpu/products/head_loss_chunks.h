/* head_loss_chunks.h: the chunked kernels of the output projection with cross entropy
 * (head_loss_chunks.c), listed in head_loss.c. */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_HEAD_LOSS_CHUNKS_H
#define SNUG_DEVICE_CPU_PRODUCTS_HEAD_LOSS_CHUNKS_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Targets are in the vocabulary or equal to ignore_index; ERR_DATA names the first that is not. */
enum status cpu_head_loss_check(const struct op_call *c) MUST_CHECK;

int64_t cpu_head_loss_workspace(const struct op_call *c, const struct kernel_env *env);
enum status cpu_head_loss(const struct kernel_ctx *x, const struct op_call *c);

int64_t cpu_head_loss_grad_workspace(const struct op_call *c, const struct kernel_env *env);
enum status cpu_head_loss_grad(const struct kernel_ctx *x, const struct op_call *c);

#ifdef __cplusplus
}
#endif
#endif
