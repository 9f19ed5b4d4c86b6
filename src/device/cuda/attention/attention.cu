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

static const char *plain_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (qkv_dims_of(c, 0).head_dim > PLAIN_MAX_HEAD_DIM)
        return "takes head_dim up to 4096";
    const char *why = attention_declines_size(c, 0, 1);
    return why ? why : cuda_declines_f64(c, env);
}

static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    return cuda_attention_plain(cuda_stream(x), &a);
}

static const char *tiles_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (qkv_dims_of(c, 0).head_dim > TILES_MAX_HEAD_DIM)
        return "takes head_dim up to 256";
    return plain_declines(c, env);
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    return cuda_attention_tiles(cuda_stream(x), &a);
}

static const char *tensor_cores_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = attention_declines_mma(c, env, 0);
    return why ? why : tiles_declines(c, env);
}

static enum status tensor_cores(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    TRY(cuda_require_aligned(c, 16));
    return cuda_attention_mma(cuda_stream(x), &a);
}

static const char *cudnn_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = attention_declines_dropout(c);
    why = why ? why : cuda_declines_unless_half(c, env);
    return why ? why : cuda_sdpa_declines(c, env);
}

extern "C" const struct kernel cuda_kernels_attention[] = {
    {.name = "cudnn",
     .declines = cudnn_declines,
     .workspace = cuda_sdpa_workspace,
     .run = cuda_sdpa_run},
    {.name = "tensor_cores",
     .declines = tensor_cores_declines,
     .workspace = NULL,
     .run = tensor_cores},
    {.name = "tiles", .declines = tiles_declines, .workspace = NULL, .run = tiles},
    {.name = "plain", .declines = plain_declines, .workspace = NULL, .run = plain},
    KERNEL_END,
};
