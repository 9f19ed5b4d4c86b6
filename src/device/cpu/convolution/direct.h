/* direct.h: convolutions and gradients of their inputs without a matrix of windows: values of the
 * source are broadcast from where they lie (see "The Indirect Convolution Algorithm", Dukhan 2019,
 * for the idea of reading windows through pointers). f32 arithmetic over f32, bf16, f16 storage.
 *
 * An output is summed over taps and channels in their order: neither threads nor blocks show.
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_DIRECT_H
#define SNUG_DEVICE_CPU_CONVOLUTION_DIRECT_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

int64_t conv_direct_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run conv_direct;
int64_t conv_grad_input_direct_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run conv_grad_input_direct;

#ifdef __cplusplus
}
#endif
#endif
