/* conv.cu: the kernel lists of convolutions and their gradients. */
#include "device/cuda/convolution/conv_cudnn.h"
#include "device/cuda/convolution/conv_few.cuh"
#include "device/cuda/convolution/conv_plain.cuh"

CUDA_RUN(conv, few, conv_few)
CUDA_RUN(conv, cudnn, cuda_conv_run)
CUDA_RUN(conv, plain, conv_plain)
CUDA_RUN(conv_grad_input, cudnn, cuda_conv_run)
CUDA_RUN(conv_grad_input, plain, conv_plain)
CUDA_RUN(conv_grad_weight, cudnn, cuda_conv_run)
CUDA_RUN(conv_grad_weight, plain, conv_plain)
