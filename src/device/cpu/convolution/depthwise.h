/* depthwise.h: convolutions of each channel with a window of its own (groups = channels =
 * features): vectors along the channels, read and written where they lie.
 *
 * Taps that leave the source are left out: rows by rows, and at both ends of a row column by
 * column.
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_DEPTHWISE_H
#define SNUG_DEVICE_CPU_CONVOLUTION_DEPTHWISE_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

const char *depthwise_declines(const struct op_call *c, const struct kernel_env *env);

int64_t depthwise_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run depthwise;
int64_t depthwise_grad_input_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run depthwise_grad_input;
int64_t depthwise_grad_weight_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run depthwise_grad_weight;

#ifdef __cplusplus
}
#endif
#endif
