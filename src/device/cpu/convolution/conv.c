/* conv.c: the kernels of convolutions and their gradients, fastest first. */
#include <stddef.h>

#include "device/cpu/convolution/conv_reference.h"
#include "device/cpu/cpu_kernels.h"

const struct kernel cpu_kernels_conv[] = {
    {"reference", NULL, NULL, conv_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_conv_grad_input[] = {
    {"reference", NULL, NULL, conv_grad_input_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_conv_grad_weight[] = {
    {"reference", NULL, NULL, conv_grad_weight_reference},
    KERNEL_END,
};
