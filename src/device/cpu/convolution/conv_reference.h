/* conv_reference.h: convolutions and their gradients as the ops define them, in double arithmetic,
 * one output at a time. */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_CONV_REFERENCE_H
#define SNUG_DEVICE_CPU_CONVOLUTION_CONV_REFERENCE_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

kernel_run conv_reference;
kernel_run conv_grad_input_reference;
kernel_run conv_grad_weight_reference;

#ifdef __cplusplus
}
#endif
#endif
