/* attention.cu: the kernel list of softmax attention over packed rows. What a GPU or a shape cannot
 * have is known only with the device at hand, so a kernel passes such calls on to the next one
 * itself: results never depend on a library being there. */
#include "device/cuda/attention/attention.cuh"
#include "device/cuda/attention/sdpa.h"

static struct attention_args args_of(const struct op_call *c)
{
    struct attention_args a = attention_args_of(c, 0, 1);
    a.out = c->out[0].data;
    a.lse = (float *)c->out[1].data;
    return a;
}

static const char *plain_declines(const struct op_call *c)
{
    if (qkv_dims_of(c, 0).head_dim > PLAIN_MAX_HEAD_DIM)
        return "takes head_dim up to 4096";
    const char *why = attention_declines_size(c, 0, 1);
    return why ? why : cuda_declines_f64(c);
}

static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    return cuda_attention_plain(cuda_stream(x), &a);
}

static const char *tiles_declines(const struct op_call *c)
{
    if (qkv_dims_of(c, 0).head_dim > TILES_MAX_HEAD_DIM)
        return "takes head_dim up to 256";
    return plain_declines(c);
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    return cuda_attention_tiles(cuda_stream(x), &a);
}

static const char *tensor_cores_declines(const struct op_call *c)
{
    int64_t head_dim = qkv_dims_of(c, 0).head_dim;
    if (head_dim != 64 && head_dim != 128)
        return "takes head_dim 64 and 128";
    const char *why = cuda_declines_unless_half(c);
    return why ? why : tiles_declines(c);
}

static enum status tensor_cores(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(c);
    if (!cuda_attention_mma_takes(&x->env, &a))
        return tiles(x, c);
    return cuda_attention_mma(cuda_stream(x), &a);
}

static const char *cudnn_declines(const struct op_call *c)
{
    int64_t head_dim = qkv_dims_of(c, 0).head_dim;
    if (head_dim % 8 != 0 || head_dim > 256)
        return "takes head_dim up to 256 in steps of 8";
    const char *why = attention_declines_dropout(c);
    why = why ? why : cuda_declines_unless_half(c);
    return why ? why : tiles_declines(c);
}

static int64_t cudnn_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return cuda_sdpa_workspace(c, env);
}

static enum status cudnn(const struct kernel_ctx *x, const struct op_call *c)
{
    bool done = false;
    TRY(cuda_sdpa_run(x, c, &done));
    if (done)
        return OK;
    return tensor_cores_declines(c) ? tiles(x, c) : tensor_cores(x, c);
}

extern "C" const struct kernel cuda_kernels_attention[] = {
    {.name = "cudnn", .declines = cudnn_declines, .workspace = cudnn_workspace, .run = cudnn},
    {.name = "tensor_cores",
     .declines = tensor_cores_declines,
     .workspace = NULL,
     .run = tensor_cores},
    {.name = "tiles", .declines = tiles_declines, .workspace = NULL, .run = tiles},
    {.name = "plain", .declines = plain_declines, .workspace = NULL, .run = plain},
    KERNEL_END,
};
