#include "device/cuda/declared/elementwise.h"

#include <stddef.h>

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"
#include "ops/layer_support.h"
#include "ops/ternary.h"

/* ---- dtypes ---------------------------------------------------------------------------------- */

static bool any_dtype_is(const struct op_call *c, enum dtype d)
{
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i].dtype == d)
            return true;
    }
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].dtype == d)
            return true;
    }
    return false;
}

const char *cuda_declines_f64(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return any_dtype_is(c, DTYPE_F64) ? "does not take f64" : NULL;
}

const char *cuda_declines_unless_half(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    bool bf16 = any_dtype_is(c, DTYPE_BF16), f16 = any_dtype_is(c, DTYPE_F16);
    if (any_dtype_is(c, DTYPE_F64) || bf16 == f16)
        return "takes one 16-bit float dtype";
    return NULL;
}

const char *cuda_fill_declines(const struct op_call *c, const struct kernel_env *env)
{
    return dtype_is_float(c->out[0].dtype) ? cuda_declines_f64(c, env) : "takes floats only";
}

const char *cuda_cast_declines(const struct op_call *c, const struct kernel_env *env)
{
    return dtype_is_float(c->in[0].dtype) ? cuda_declines_f64(c, env) : "takes floats only";
}

/* ---- gelu_bias_grad -------------------------------------------------------------------------- */

struct strip_cut gelu_strip_cut(const struct op_call *c, const struct kernel_env *env)
{
    enum { WARP_LANES = 32, VECTOR_BYTES = 16 };
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_rows(&c->in[0].shape);
    int64_t n_vectors = MAX(ceil_div(n * dtype_size(c->in[0].dtype), VECTOR_BYTES), (int64_t)1);
    int64_t stages = (int64_t)VECTOR_BYTES * 2 * GELU_STAGES;
    int64_t most = env->gpu->shared_per_block_optin / stages / WARP_LANES * WARP_LANES;
    most = MIN(most, (int64_t)GELU_GRAD_THREADS);
    int64_t n_strips = ceil_div(n_vectors, most);
    int64_t lanes = ceil_div(ceil_div(n_vectors, n_strips), WARP_LANES) * WARP_LANES;
    int64_t lines = most / lanes;
    int64_t n_bands = (int64_t)env->gpu->n_multiprocessors * GELU_BLOCKS / n_strips;
    n_bands = MIN(n_bands, ceil_div(n_rows, lines * GELU_LEAST));
    return (struct strip_cut){(unsigned)n_strips, (unsigned)MAX(n_bands, (int64_t)1),
                              (unsigned)lanes, (unsigned)lines};
}

int64_t cuda_gelu_bias_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return gelu_strip_cut(c, env).n_bands * shape_last(&c->in[0].shape) * (int64_t)sizeof(float);
}

/* ---- embedding_grad -------------------------------------------------------------------------- */

const char *cuda_embedding_grad_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (shape_elems(&c->in[1].shape) > INT32_MAX || call_int(c, 0) >= INT32_MAX)
        return "takes fewer than 2^31 ids and rows";
    return cuda_declines_f64(c, env);
}

static int64_t whole_lines(int64_t n_bytes)
{
    return ceil_div(n_bytes, 64) * 64;
}

struct embedding_layout embedding_layout_of(const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[1].shape), n_columns = c->out[0].shape.dim[1];
    int64_t n_counts = ceil_div(n, EMBEDDING_SORT_ITEMS) * EMBEDDING_DIGITS;
    return (struct embedding_layout){
        .pairs_bytes = whole_lines(n * (int64_t)sizeof(int32_t)),
        .counts_bytes = whole_lines(n_counts * (int64_t)sizeof(int32_t)),
        .edges_bytes = ceil_div(n, EMBEDDING_PIECE) * 2 * n_columns * (int64_t)sizeof(float),
    };
}

int64_t cuda_embedding_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct embedding_layout l = embedding_layout_of(c);
    (void)env;
    return 4 * l.pairs_bytes + l.counts_bytes + l.edges_bytes;
}

/* ---- ternary_weight -------------------------------------------------------------------------- */

int64_t cuda_ternary_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->attrs[TERNARY_ROWS].n_ints * TERNARY_PARTS * (int64_t)sizeof(double);
}

/* ---- transpose ------------------------------------------------------------------------------- */

struct planes transpose_planes(const struct permutation *p)
{
    struct planes l = {.p = *p, .dst_step = 1, .below = 1, .n_planes = 1};
    int last = p->rank - 1;
    while (p->src_step[l.fast] != 1)
        l.fast++;
    for (int a = last; a > l.fast; a--)
        l.dst_step *= p->dim[a];
    for (int a = last - 1; a > l.fast; a--)
        l.below *= p->dim[a];
    for (int a = 0; a < last; a++)
        l.n_planes *= a == l.fast ? 1 : p->dim[a];
    l.n_rows = p->dim[l.fast];
    l.n_columns = p->dim[last];
    return l;
}

const char *cuda_transpose_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct permutation p = transpose_simplified(c);
    (void)env;
    if (p.rank <= 1 || p.src_step[p.rank - 1] == 1)
        return NULL;
    struct planes l = transpose_planes(&p);
    int64_t n_tiles =
        l.n_planes * ceil_div(l.n_rows, TRANSPOSE_TILE) * ceil_div(l.n_columns, TRANSPOSE_TILE);
    return n_tiles > INT32_MAX ? "more tiles than a launch has blocks" : NULL;
}

/* ---- rotary ---------------------------------------------------------------------------------- */

const char *cuda_rotary_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    if (d.heads + 2 * d.kv_heads > (1 << 20) || d.head_dim > (1 << 20))
        return "too many heads or too long ones";
    if (d.batch * d.n_tokens > INT32_MAX)
        return "more blocks than a launch has";
    return cuda_declines_f64(c, env);
}

const char *cuda_rotary_vectors_declines(const struct op_call *c, const struct kernel_env *env)
{
    int64_t half = c->in[1].shape.dim[0];
    if (2 * half != qkv_dims_of(c, 0).head_dim)
        return "takes heads that turn as a whole";
    if (half % (16 / dtype_size(c->in[0].dtype)) != 0)
        return "half a head is no whole number of vectors";
    if (half > ROTARY_MOST_PAIRS)
        return "heads are too long";
    return cuda_rotary_declines(c, env);
}
