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

/* delta, one f32 per query and head: what all our kernels need. */
static int64_t delta_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return shape_elems(&c->in[3].shape) * (int64_t)sizeof(float);
}

static const char *plain_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (qkv_dims_of(c, 1).head_dim > PLAIN_MAX_HEAD_DIM)
        return "takes head_dim up to 4096";
    const char *why = attention_declines_size(c, 1, 1);
    return why ? why : cuda_declines_f64(c, env);
}

static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(x, c);
    return cuda_attention_grad_plain(cuda_stream(x), &a);
}

static const char *tiles_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (qkv_dims_of(c, 1).head_dim > TILES_GRAD_MAX_HEAD_DIM)
        return "takes head_dim up to 128";
    return plain_declines(c, env);
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(x, c);
    return cuda_attention_grad_tiles(cuda_stream(x), &a);
}

static const char *tensor_cores_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = attention_declines_mma(c, env, 1);
    return why ? why : tiles_declines(c, env);
}

static enum status tensor_cores(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_args a = args_of(x, c);
    TRY(cuda_require_aligned(c, 16));
    return cuda_attention_grad_mma(cuda_stream(x), &a);
}

static const char *cudnn_declines(const struct op_call *c, const struct kernel_env *env)
{
    const char *why = attention_declines_dropout(c);
    why = why ? why : cuda_declines_unless_half(c, env);
    return why ? why : cuda_sdpa_declines(c, env);
}

extern "C" const struct kernel cuda_kernels_attention_grad[] = {
    {.name = "cudnn",
     .declines = cudnn_declines,
     .workspace = cuda_sdpa_workspace,
     .run = cuda_sdpa_grad_run},
    {.name = "tensor_cores",
     .declines = tensor_cores_declines,
     .workspace = delta_workspace,
     .run = tensor_cores},
    {.name = "tiles", .declines = tiles_declines, .workspace = delta_workspace, .run = tiles},
    {.name = "plain", .declines = plain_declines, .workspace = delta_workspace, .run = plain},
    KERNEL_END,
};
