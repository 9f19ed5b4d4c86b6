#include "device/cuda/declared/channel_norm.h"

#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "device/cuda/declared/sums.h"
#include "ops/channel_norm_support.h"

struct channel_extent channel_extent_of(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    bool by_group = c->op == OP_group_norm || c->op == OP_group_norm_grad;
    bool by_sample = by_group || c->op == OP_dropout || c->op == OP_film || c->op == OP_film_grad ||
                     c->op == OP_batch_norm_film_grad;
    struct channel_extent e = {.n_samples = by_sample ? x->dim[0] : 1, .channels = shape_last(x)};
    e.groups = by_group ? call_int(c, GROUP_NORM_GROUPS) : e.channels;
    e.width = e.channels / e.groups;
    e.n_places = shape_rows(x) / e.n_samples;
    return e;
}

struct channel_extent channel_extent_by_sample(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    return (struct channel_extent){.n_samples = x->dim[0],
                                   .n_places = shape_rows(x) / x->dim[0],
                                   .groups = shape_last(x),
                                   .width = 1,
                                   .channels = shape_last(x)};
}

/* Vectors of at most n channels. */
static struct channel_cut cut_of(const struct op_call *c, int64_t n)
{
    int64_t channels = shape_last(&c->in[0].shape);
    struct channel_cut cut = {.vector = channels % n == 0 ? (int)n : 1};
    int64_t n_vectors = channels / cut.vector;
    cut.lanes = (int)MIN(n_vectors, (int64_t)CHANNEL_THREADS);
    cut.lines = CHANNEL_THREADS / cut.lanes;
    cut.n_tiles = ceil_div(n_vectors, cut.lanes);
    return cut;
}

static void set_bands(struct channel_cut *cut, int64_t n_places, int64_t n_bands)
{
    int64_t most = ceil_div(n_places, (int64_t)cut->lines * CHANNEL_AHEAD);
    n_bands = MAX(MIN(n_bands, most), (int64_t)1);
    cut->band_rows = ceil_div(n_places, n_bands);
    cut->n_bands = ceil_div(n_places, cut->band_rows);
}

struct channel_cut channel_cut_sums(const struct op_call *c, const struct kernel_env *env)
{
    struct channel_extent e = channel_extent_of(c);
    /* Three sums in f64 of eight channels would leave registers for a block alone. */
    int64_t n = c->op == OP_batch_norm_film_grad ? 4 : 16 / dtype_size(c->in[0].dtype);
    struct channel_cut cut = cut_of(c, n);
    int64_t n_blocks = CHANNEL_BLOCKS * (int64_t)env->gpu->n_multiprocessors;
    set_bands(&cut, e.n_places, n_blocks / (e.n_samples * cut.n_tiles));
    return cut;
}

struct channel_cut channel_cut_rows_in(const struct op_call *c, const struct channel_extent *e)
{
    enum { LOOPS = 4 }; /* of a thread */
    struct channel_cut cut = cut_of(c, 16 / dtype_size(c->in[0].dtype));
    set_bands(&cut, e->n_places,
              ceil_div(e->n_places, (int64_t)cut.lines * CHANNEL_AHEAD * (int64_t)LOOPS));
    return cut;
}

struct channel_cut channel_cut_rows(const struct op_call *c)
{
    struct channel_extent e = channel_extent_of(c);
    return channel_cut_rows_in(c, &e);
}

int64_t channel_sums_bytes(const struct op_call *c, const struct kernel_env *env)
{
    struct channel_extent e = channel_extent_of(c);
    struct channel_cut cut = channel_cut_sums(c, env);
    return e.n_samples * cut.n_bands * CHANNEL_SUMS * e.channels * (int64_t)sizeof(double);
}

int64_t cuda_channel_norm_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return channel_sums_bytes(c, env);
}

int64_t cuda_channel_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct channel_extent e = channel_extent_of(c);
    int64_t shares = e.n_samples * e.groups * CHANNEL_SUMS;
    return channel_sums_bytes(c, env) + shares * (int64_t)sizeof(float);
}

int activated_sums(const struct op_call *c)
{
    return c->op == OP_batch_norm_film_grad ? 3 : 2;
}

int64_t activated_sums_bytes(const struct op_call *c, const struct kernel_env *env)
{
    struct channel_extent e = channel_extent_of(c);
    struct channel_cut cut = channel_cut_sums(c, env);
    return e.n_samples * cut.n_bands * activated_sums(c) * e.channels * (int64_t)sizeof(double);
}

int64_t cuda_activated_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    int64_t shares = ACTIVATED_SHARES * shape_last(&c->in[0].shape);
    return activated_sums_bytes(c, env) + shares * (int64_t)sizeof(float);
}
