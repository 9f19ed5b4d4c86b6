#include "device/cuda/declared/attention.h"

#include <stddef.h>

#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"
#include "device/device.h"
#include "ops/cross_attention_support.h"
#include "ops/layer_support.h"

/* ---- our kernels ----------------------------------------------------------------------------- */

/* qkv is input 0 of attention and input 1 of its gradient. */
static struct qkv_dims dims_of(const struct op_call *c)
{
    return qkv_dims_of(c, c->op == OP_attention_grad ? 1 : 0);
}

/* Do samples share rows? Positions come behind the random state. */
static bool is_packed(const struct op_call *c)
{
    return call_has(c, c->op == OP_attention_grad ? 5 : 2);
}

/* Grids are one-dimensional and token counts are ints: what no kernel here takes. */
static const char *size_declines(const struct qkv_dims *d)
{
    if (d->n_tokens > (1 << 30) || d->batch > (1 << 30) || d->heads > (1 << 20))
        return "too many tokens, sequences or heads";
    if (d->n_tokens * d->batch * d->heads > INT32_MAX)
        return "more blocks than a launch has";
    return NULL;
}

const char *cuda_attention_plain_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct qkv_dims d = dims_of(c);
    if (d.head_dim > PLAIN_MAX_HEAD_DIM)
        return "takes head_dim up to 4096";
    const char *why = size_declines(&d);
    return why ? why : cuda_declines_f64(c, env);
}

const char *cuda_attention_tiles_declines(const struct op_call *c, const struct kernel_env *env)
{
    int64_t head_dim = dims_of(c).head_dim;
    if (head_dim > TILES_MAX_HEAD_DIM)
        return "takes head_dim up to 256";
    bool has_room = env->gpu && env->gpu->major >= 8;
    if (c->op == OP_attention_grad && head_dim > TILES_GRAD_ANY_HEAD_DIM &&
        (call_float(c, ATTENTION_CAP) == 0.0 || !has_room))
        return "takes head_dim up to 128, or 256 under a cap from compute capability 8.0 on";
    return cuda_attention_plain_declines(c, env);
}

/* Tensor cores: bf16 and f16, heads of 64 and 128, compute capability 8.0 and up. The maximum of
 * the scaled scores is taken before scaling: that needs a positive scale. */
const char *cuda_attention_tensor_cores_declines(const struct op_call *c,
                                                 const struct kernel_env *env)
{
    struct qkv_dims d = dims_of(c);
    if (d.head_dim != 64 && d.head_dim != 128)
        return "takes head_dim 64 and 128";
    if (!env->gpu || env->gpu->major < 8)
        return "needs compute capability 8.0";
    if (!((float)attention_scale(c, ATTENTION_SCALE, &d) > 0.0f))
        return "takes a positive scale only";
    if (call_float(c, ATTENTION_CAP) > 0.0 && call_float(c, ATTENTION_DROPOUT) > 0.0)
        return "takes either a cap on scores or dropout";
    if (is_packed(c) &&
        (call_float(c, ATTENTION_CAP) > 0.0 || call_float(c, ATTENTION_DROPOUT) > 0.0))
        return "takes samples that share rows without a cap on scores and without dropout";
    const char *why = cuda_declines_unless_half(c, env);
    return why ? why : cuda_attention_tiles_declines(c, env);
}

/* delta, one f32 per query and head: what all our kernels of the gradient need. */
int64_t cuda_attention_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return shape_elems(&c->in[3].shape) * (int64_t)sizeof(float);
}

const char *cuda_attention_cached_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    if (d.head_dim > PLAIN_MAX_HEAD_DIM)
        return "takes head_dim up to 4096";
    if (d.batch * d.n_tokens > INT32_MAX / d.heads)
        return "more blocks than a launch has";
    return cuda_declines_f64(c, env);
}

/* ---- between two sequences ------------------------------------------------------------------- */

static struct cross_dims cross_of(const struct op_call *c)
{
    return cross_dims_of(c, c->op == OP_cross_attention_grad ? CROSS_GRAD_Q : CROSS_Q);
}

/* Grids are one-dimensional, with a block for a query or a key at most, and places are ints. */
const char *cuda_cross_attention_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct cross_dims d = cross_of(c);
    int64_t longest = MAX(d.n_queries, d.n_keys);
    if (d.head_dim > PLAIN_MAX_HEAD_DIM)
        return "takes head_dim up to 4096";
    if (longest > (1 << 30) || d.batch > (1 << 30) || d.heads > (1 << 20))
        return "too many tokens, sequences or heads";
    if (longest > 0 && d.batch * d.heads > INT32_MAX / longest)
        return "more blocks than a launch has";
    return cuda_declines_f64(c, env);
}

const char *cuda_cross_attention_tiles_declines(const struct op_call *c,
                                                const struct kernel_env *env)
{
    if (cross_of(c).head_dim > CROSS_TILES_MAX_HEAD_DIM)
        return "takes head_dim up to 128";
    return cuda_cross_attention_declines(c, env);
}

/* delta, one f32 per query and head. */
int64_t cuda_cross_attention_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return shape_elems(&c->in[CROSS_GRAD_LSE].shape) * (int64_t)sizeof(float);
}

/* ---- cuDNN's --------------------------------------------------------------------------------- */

const char *cuda_attention_cudnn_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (call_float(c, ATTENTION_DROPOUT) > 0.0)
        return "drops by draws of its own";
    if (call_float(c, ATTENTION_CAP) > 0.0)
        return "has no cap on scores";
    if (is_packed(c))
        return "takes one sample to a row";
    if (call_int(c, ATTENTION_BLOCK) > 0)
        return "has no windows of blocks";
    const char *why = cuda_declines_unless_half(c, env);
    if (why)
        return why;
    return env->gpu ? env->gpu->answers->attention_declines(c, env)
                    : "there is no cuDNN without a GPU";
}

int64_t cuda_attention_cudnn_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return env->gpu->answers->attention_workspace(c, env);
}

struct sdpa_shape sdpa_shape_of(const struct op_call *c)
{
    bool backward = c->op == OP_attention_grad;
    struct qkv_dims d = dims_of(c);
    int64_t window = call_int(c, ATTENTION_WINDOW);
    return (struct sdpa_shape){
        .kind = backward ? SDPA_GRAD : SDPA_FORWARD,
        .dtype = c->in[backward ? 1 : 0].dtype,
        .batch = d.batch,
        .n_tokens = d.n_tokens,
        .heads = d.heads,
        .kv_heads = d.kv_heads,
        .head_dim = d.head_dim,
        .row_heads = d.heads,
        .row_kv_heads = d.kv_heads,
        .window = window < d.n_tokens ? window : 0,
        .causal = call_bool(c, ATTENTION_CAUSAL),
        .scale = (float)attention_scale(c, ATTENTION_SCALE, &d),
    };
}

const char *sdpa_known_limit(const struct gpu_model *gpu, const struct sdpa_shape *s,
                             size_t version)
{
    if (gpu->major < 8)
        return "needs compute capability 8.0";
    if (version < 90000 || version == 91000 || version == 91001)
        return "this version of cuDNN is too old, or computes it wrong";
    /* Backwards, partly filled tiles of keys went wrong without a padding mask. */
    if (s->kind != SDPA_FORWARD && version <= 91500 && s->n_tokens % 128 != 0)
        return "this version of cuDNN wants a multiple of 128 tokens";
    if (s->batch == 0 || s->n_tokens <= 1)
        return "takes two tokens or more";
    if (s->head_dim % 8 != 0 || s->head_dim > (gpu->major == 9 ? 256 : 128))
        return "takes head_dim in steps of 8, up to 256 or 128 as the GPU has it";
    return NULL;
}

struct sdpa_space sdpa_space_of(const struct sdpa_shape *part)
{
    int64_t n_queries = part->batch * part->heads * part->n_tokens, at = 0;
    int64_t copies = 2 * n_queries * part->head_dim * dtype_size(part->dtype);
    struct sdpa_space s = {.delta_at = at};
    if (part->kind != SDPA_FORWARD)
        at += align_up(n_queries * (int64_t)sizeof(float), ARENA_ALIGN);
    s.copies_at = at;
    if (part->repeated)
        at += align_up(copies, ARENA_ALIGN);
    s.copies_grad_at = at;
    if (part->repeated && part->kind != SDPA_FORWARD)
        at += align_up(copies, ARENA_ALIGN);
    s.engine_at = at;
    return s;
}
