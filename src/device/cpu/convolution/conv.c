/* conv.c: the kernels of convolutions and their gradients, fastest first. */
#include <stddef.h>

#include "device/cpu/convolution/conv_reference.h"
#include "device/cpu/convolution/depthwise.h"
#include "device/cpu/convolution/direct.h"
#include "device/cpu/convolution/narrow.h"
#include "device/cpu/convolution/weight_grad.h"
#include "device/cpu/cpu_kernels.h"

const struct kernel cpu_kernels_conv[] = {
    {"depthwise", depthwise_declines, depthwise_workspace, depthwise},
    {"narrow", conv_narrow_declines, conv_narrow_workspace, conv_narrow},
    {"direct", cpu_declines_f64, conv_direct_workspace, conv_direct},
    {"reference", NULL, NULL, conv_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_conv_grad_input[] = {
    {"depthwise", depthwise_declines, depthwise_grad_input_workspace, depthwise_grad_input},
    {"narrow", conv_grad_input_narrow_declines, conv_grad_input_narrow_workspace,
     conv_grad_input_narrow},
    {"direct", cpu_declines_f64, conv_grad_input_direct_workspace, conv_grad_input_direct},
    {"reference", NULL, NULL, conv_grad_input_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_conv_grad_weight[] = {
    {"depthwise", depthwise_declines, depthwise_grad_weight_workspace, depthwise_grad_weight},
    {"direct", cpu_declines_f64, conv_grad_weight_direct_workspace, conv_grad_weight_direct},
    {"reference", NULL, NULL, conv_grad_weight_reference},
    KERNEL_END,
};
