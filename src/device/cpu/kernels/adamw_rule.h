/* adamw_rule.h: AdamW's kernels, for states that are numbers and for states in codes. */
#ifndef SNUG_DEVICE_CPU_KERNELS_ADAMW_RULE_H
#define SNUG_DEVICE_CPU_KERNELS_ADAMW_RULE_H

#include "device/cpu/cpu_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status adamw_blocked(const struct kernel_ctx *x, const struct op_call *c);
enum status adamw_reference(const struct kernel_ctx *x, const struct op_call *c);

#ifdef __cplusplus
}
#endif
#endif
