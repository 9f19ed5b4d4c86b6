/* attention_grad.cu: the kernel list of the gradient of softmax attention. */
#include "device/cuda/attention/attention.cuh"
#include "device/cuda/attention/sdpa.h"

static struct attention_args args_of(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = attention_args_of(c, 1, 4);
    a.dout = c->in[0].data;
    a.out = c->in[2].data;
    a.lse = (float *)c->in[3].data;
    a.dqkv = c->out[0].data;
    a.delta = (float *)x->workspace;
    return a;
}

static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(x, c);
    return cuda_attention_grad_plain(cuda_stream(x), &a);
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(x, c);
    return cuda_attention_grad_tiles(cuda_stream(x), &a);
}

static enum status tensor_cores(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(x, c);
    TRY(cuda_require_aligned(c, 16));
    return cuda_attention_grad_mma(cuda_stream(x), &a);
}

CUDA_RUN(attention_grad, cudnn, cuda_sdpa_grad_run)
CUDA_RUN(attention_grad, tensor_cores, tensor_cores)
CUDA_RUN(attention_grad, tiles, tiles)
CUDA_RUN(attention_grad, plain, plain)
