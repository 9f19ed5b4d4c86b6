/* attention.cu: the kernel list of softmax attention over packed rows. */
#include "device/cuda/attention/attention.cuh"
#include "device/cuda/attention/sdpa.h"

static struct attention_args args_of(const struct op_call *c)
{
    struct attention_args a = attention_args_of(c, 0, 1);
    a.out = c->out[0].data;
    a.lse = (float *)c->out[1].data;
    return a;
}

static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    return cuda_attention_plain(cuda_stream(x), &a);
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    return cuda_attention_tiles(cuda_stream(x), &a);
}

static enum status tensor_cores(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    TRY(cuda_require_aligned(c, 16));
    return cuda_attention_mma(cuda_stream(x), &a);
}

CUDA_RUN(attention, cudnn, cuda_sdpa_run)
CUDA_RUN(attention, tensor_cores, tensor_cores)
CUDA_RUN(attention, tiles, tiles)
CUDA_RUN(attention, plain, plain)
