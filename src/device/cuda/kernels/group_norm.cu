/* group_norm.cu: norms over a sample's channels of a group and all its places. */
#include "device/cuda/kernels/channel_norm.cuh"
#include "ops/channel_norm_support.h"

static enum status group_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    return channel_norm(x, c, call_float(c, GROUP_NORM_EPSILON));
}

CUDA_RUN(group_norm, bands, group_norm)
CUDA_RUN(group_norm_grad, bands, channel_norm_grad)
