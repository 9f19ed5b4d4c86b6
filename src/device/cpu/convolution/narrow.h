/* narrow.h: convolutions that make few channels, and gradients of inputs that have few: the first
 * layers of networks over grey or coloured images.
 *
 * With a result of one channel the direct kernels use one lane of sixteen. Here the lanes are the
 * taps: every place of the source is multiplied with the weights of all taps at once, and sixteen
 * places, transposed, are added tap by tap to the rows of the result.
 *
 * A result is summed over rows of the source, sixteen columns at a time, in their order: neither
 * threads nor bands of rows show.
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_NARROW_H
#define SNUG_DEVICE_CPU_CONVOLUTION_NARROW_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

const char *conv_narrow_declines(const struct op_call *c, const struct kernel_env *env);
int64_t conv_narrow_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run conv_narrow;
const char *conv_grad_input_narrow_declines(const struct op_call *c, const struct kernel_env *env);
int64_t conv_grad_input_narrow_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run conv_grad_input_narrow;

#ifdef __cplusplus
}
#endif
#endif
