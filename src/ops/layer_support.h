/* layer_support.h: what the layer ops share: the packed query/key/value layout with its attributes,
 * the dtype attribute and accumulator of parameter gradients, and attribute positions that kernels
 * read.
 *
 * Packed layout, one row per token ("qkv"), D = head_dim:
 *
 *     | q head 0 | ... | q head H-1 | k head 0 | ... | k head KV-1 | v head 0 | ... | v head KV-1 |
 *
 * Query head h reads key/value head h / (H / KV).
 */
#ifndef SNUG_OPS_LAYER_SUPPORT_H
#define SNUG_OPS_LAYER_SUPPORT_H

#include <math.h>
#include <string.h>

#include "ops/dropout_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attribute positions. All ops on the packed layout begin with the same three. */
enum { QKV_HEADS, QKV_KV_HEADS, QKV_HEAD_DIM, QKV_N_ATTRS };
enum { ATTENTION_MOST_BLOCK = 1 << 15 };
enum { QKV_MOST = 1 << 24 }; /* of each: their products fit 64 bits */
enum {
    ATTENTION_CAUSAL = QKV_N_ATTRS,
    ATTENTION_WINDOW,
    ATTENTION_SCALE,
    ATTENTION_DROPOUT,
    ATTENTION_SEED,
    ATTENTION_CAP,
    ATTENTION_BLOCK,
    ATTENTION_N_ATTRS
};
enum { CACHED_WINDOW = QKV_N_ATTRS, CACHED_SCALE, CACHED_CAP, CACHED_BLOCK };
enum { ROTARY_INVERSE = QKV_N_ATTRS, ROTARY_SCALE };
enum { RMS_NORM_EPSILON, RMS_NORM_OFFSET };
enum { RMS_NORM_GRAD_DTYPE, RMS_NORM_GRAD_OFFSET };
enum { HEAD_NORM_EPSILON = QKV_N_ATTRS, HEAD_NORM_OFFSET };
enum { HEAD_NORM_GRAD_DTYPE = QKV_N_ATTRS, HEAD_NORM_GRAD_OFFSET };
enum {
    HEAD_LOSS_CHUNKS,
    HEAD_LOSS_IGNORE,
    HEAD_LOSS_SMOOTHING,
    HEAD_LOSS_Z,
    HEAD_LOSS_CAP,
    HEAD_LOSS_DTYPE
};

#define QKV_ATTRS                                                                 \
    {"heads", ATTR_INT, {.i = 0}, true}, {"kv_heads", ATTR_INT, {.i = 0}, false}, \
    {                                                                             \
        "head_dim", ATTR_INT, {.i = 0}, false                                     \
    }

/* attention and its gradient. */
#define ATTENTION_ATTRS                                                                       \
    QKV_ATTRS, {"causal", ATTR_BOOL, {.i = 1}, false}, {"window", ATTR_INT, {.i = 0}, false}, \
        {"scale", ATTR_FLOAT, {.f = 0.0}, false}, {"dropout", ATTR_FLOAT, {.f = 0.0}, false}, \
        {"seed", ATTR_INT, {.i = 0}, false}, {"softcap", ATTR_FLOAT, {.f = 0.0}, false},      \
    {                                                                                         \
        "block", ATTR_INT, {.i = 0}, false                                                    \
    }

struct qkv_dims {
    int64_t batch, n_tokens;
    int64_t heads, kv_heads, head_dim;
    int64_t width; /* (heads + 2 kv_heads) * head_dim */
};

/* Reads the layout of input i: heads is required, kv_heads 0 means heads, head_dim 0 means what the
 * width gives. The results are meaningful only for calls that qkv_check accepted. */
static inline struct qkv_dims qkv_dims_of(const struct op_call *c, int i)
{
    const struct shape *s = &c->in[i].shape;
    struct qkv_dims d;
    d.batch = s->dim[0];
    d.n_tokens = s->dim[1];
    d.width = s->dim[2];
    d.heads = call_int(c, QKV_HEADS);
    d.kv_heads = call_int(c, QKV_KV_HEADS) ? call_int(c, QKV_KV_HEADS) : d.heads;
    d.head_dim = call_int(c, QKV_HEAD_DIM);
    if (d.head_dim == 0 && d.heads + 2 * d.kv_heads > 0)
        d.head_dim = d.width / (d.heads + 2 * d.kv_heads);
    return d;
}

static inline enum status MUST_CHECK qkv_check(const struct op_call *c, int i, struct qkv_dims *d)
{
    memset(d, 0, sizeof(*d));
    TRY(need_float(c, i));
    TRY(need_rank(c, i, 3));
    for (int k = QKV_HEADS; k <= QKV_HEAD_DIM; k++) {
        if (call_int(c, k) < 0 || call_int(c, k) > QKV_MOST)
            return REJECT(c, "heads, kv_heads and head_dim must be from 0 to %d", QKV_MOST);
    }
    *d = qkv_dims_of(c, i);
    if (d->heads < 1 || d->kv_heads < 1 || d->head_dim < 1)
        return REJECT(c, "heads, kv_heads and head_dim must be positive");
    if (d->heads % d->kv_heads != 0)
        return REJECT(c, "%lld heads are no multiple of %lld kv_heads", (long long)d->heads,
                      (long long)d->kv_heads);
    if (d->width != (d->heads + 2 * d->kv_heads) * d->head_dim)
        return REJECT(c, "input %d has last axis %lld, but (heads + 2 kv_heads) * head_dim is %lld",
                      i, (long long)d->width,
                      (long long)((d->heads + 2 * d->kv_heads) * d->head_dim));
    return OK;
}

/* Attribute i_attr is a cap on scores or logits: cap tanh(s / cap) takes the place of s. */
static inline enum status MUST_CHECK need_softcap(const struct op_call *c, int i_attr)
{
    double cap = call_float(c, i_attr);
    if (!(cap >= 0.0 && cap <= 3e38))
        return REJECT(c, "softcap must not be negative (0: none)");
    return OK;
}

/* s under a cap, 0 for none; and the slope there, from what came out. */
static inline double softcap_of(double s, double cap)
{
    return cap > 0.0 ? cap * tanh(s / cap) : s;
}
static inline double softcap_slope(double capped, double cap)
{
    return cap > 0.0 ? 1.0 - capped / cap * (capped / cap) : 1.0;
}

/* Where several samples share a row: input i, the place of each token in its own sample. It rises
 * by one from token to token and begins again at 0. */
static inline enum status MUST_CHECK need_positions(const struct op_call *c, int i,
                                                    const struct qkv_dims *d)
{
    struct shape s = shape_of(2, d->batch, d->n_tokens);
    if (!call_has(c, i))
        return OK;
    TRY(need_dtype(c, i, DTYPE_I32));
    return need_shape(c, i, &s);
}

/* Attributes of a window: so many tokens, the query's own the last; or, where they come in blocks,
 * the query's own block and whole blocks before it. */
static inline enum status MUST_CHECK need_window(const struct op_call *c, int i_window, int i_block)
{
    int64_t window = call_int(c, i_window), block = call_int(c, i_block);
    if (window < 0)
        return REJECT(c, "window must not be negative (0: none)");
    if (block < 0 || block > ATTENTION_MOST_BLOCK)
        return REJECT(c, "block must be from 0 (none) to %d", ATTENTION_MOST_BLOCK);
    if (block > 0 && (window == 0 || window % block != 0))
        return REJECT(c, "blocks of %lld need a window of some of them, not of %lld",
                      (long long)block, (long long)window);
    return OK;
}

/* The first key that the query at i may see through a window (0: none) of blocks (0: none). */
static inline int64_t attention_first(int64_t i, int64_t window, int64_t block)
{
    int64_t end = block > 0 ? i - i % block + block : i + 1;
    return window > 0 && end > window ? end - window : 0;
}

/* The checks of attention and its gradient: qkv is input i, the random state input i_rng, positions
 * come behind it. */
static inline enum status MUST_CHECK attention_check(const struct op_call *c, int i, int i_rng,
                                                     struct qkv_dims *d)
{
    TRY(qkv_check(c, i, d));
    TRY(need_window(c, ATTENTION_WINDOW, ATTENTION_BLOCK));
    if (call_int(c, ATTENTION_WINDOW) > 0 && !call_bool(c, ATTENTION_CAUSAL))
        return REJECT(c, "a window needs causal attention");
    TRY(need_softcap(c, ATTENTION_CAP));
    TRY(need_dropout(c, i_rng, call_float(c, ATTENTION_DROPOUT), call_int(c, ATTENTION_SEED)));
    if (call_float(c, ATTENTION_DROPOUT) > 0.0 && !call_has(c, i_rng))
        return REJECT(c, "dropout needs a random state, input %d", i_rng);
    if (call_has(c, i_rng + 1) && !call_bool(c, ATTENTION_CAUSAL))
        return REJECT(c, "positions need causal attention");
    return need_positions(c, i_rng + 1, d);
}

/* Pairs of a query and an earlier key of n tokens through a window (0: none) of blocks (0: none).
 */
static inline double attention_causal_pairs(int64_t n, int64_t window, int64_t block)
{
    int64_t size = MAX(block, (int64_t)1);
    double t = (double)n, w = (double)window, b = (double)size;
    if (window == 0 || window >= n)
        return t * (t + 1.0) / 2.0;
    double whole = (double)((n - window) / size), rest = (double)((n - window) % size);
    return w * (w + 1.0) / 2.0 + whole * (b * (w - b) + b * (b + 1.0) / 2.0) + rest * (w - b) +
           rest * (rest + 1.0) / 2.0;
}

/* Pairs of a query and a key of one head that are not masked. */
static inline double attention_pairs(const struct op_call *c, const struct qkv_dims *d)
{
    if (!call_bool(c, ATTENTION_CAUSAL))
        return (double)d->n_tokens * (double)d->n_tokens;
    return attention_causal_pairs(d->n_tokens, call_int(c, ATTENTION_WINDOW),
                                  call_int(c, ATTENTION_BLOCK));
}

/* The factor on the scores: the attribute, or 1/sqrt(head_dim) where it is 0. */
static inline double attention_scale(const struct op_call *c, int i_attr, const struct qkv_dims *d)
{
    double scale = call_float(c, i_attr);
    return scale == 0.0 ? 1.0 / sqrt((double)d->head_dim) : scale;
}

/* The dtype of a parameter gradient: attribute i_attr, or the dtype of input `like` where it is
 * NONE. */
static inline enum status MUST_CHECK grad_dtype(const struct op_call *c, int i_attr, int like,
                                                enum dtype *d)
{
    *d = (enum dtype)call_int(c, i_attr);
    if (*d == DTYPE_NONE)
        *d = c->in[like].dtype;
    if (!dtype_is_float(*d))
        return REJECT(c, "dtype must be a float dtype, not %s", dtype_name(*d));
    return OK;
}

/* The optional accumulator, input i, has the gradient's dtype and shape. */
static inline enum status MUST_CHECK need_accumulator(const struct op_call *c, int i, enum dtype d,
                                                      const struct shape *s)
{
    if (!call_has(c, i))
        return OK;
    TRY(need_dtype(c, i, d));
    return need_shape(c, i, s);
}

/* Statistics of input `like` that come in as input i. */
static inline enum status MUST_CHECK need_statistics(const struct op_call *c, int i, int like,
                                                     const struct shape *s)
{
    TRY(need_dtype(c, i, dtype_accumulator(c->in[like].dtype)));
    return need_shape(c, i, s);
}

/* A vector of n parameters in input `like`'s dtype or f32. */
static inline enum status MUST_CHECK need_weight(const struct op_call *c, int i, int like,
                                                 int64_t n)
{
    struct shape s = shape_of(1, n);
    if (c->in[i].dtype != c->in[like].dtype && c->in[i].dtype != DTYPE_F32)
        return REJECT(c, "input %d must be %s or f32, not %s", i, dtype_name(c->in[like].dtype),
                      dtype_name(c->in[i].dtype));
    return need_shape(c, i, &s);
}

static inline enum status MUST_CHECK need_min_rank(const struct op_call *c, int i, int rank)
{
    if (c->in[i].shape.rank < rank)
        return REJECT(c, "input %d must have rank %d or more, not %d", i, rank,
                      c->in[i].shape.rank);
    return OK;
}

/* s without its last axis. */
static inline struct shape shape_without_last(struct shape s)
{
    if (s.rank > 0)
        s.dim[--s.rank] = 0;
    return s;
}

/* s with its last axis made n long. */
static inline struct shape shape_with_last(struct shape s, int64_t n)
{
    if (s.rank > 0)
        s.dim[s.rank - 1] = n;
    return s;
}

/* Input i of a node, VALUE_NONE when it was left out at the end. */
static inline value_id node_input(const struct node *n, int i)
{
    return i < n->n_in ? n->in[i] : VALUE_NONE;
}

/* Gradients through statistics outputs are not built: a graph that needs one is refused. */
static inline enum status MUST_CHECK no_grad_through(const struct node *n, const value_id *d_out,
                                                     int first, int last)
{
    for (int i = first; i <= last; i++) {
        if (d_out[i] != VALUE_NONE)
            return FAIL(ERR_UNSUPPORTED, "%s: output %d has no gradient", op_get(n->op)->name, i);
    }
    return OK;
}

/* What the head with its loss has in common with its gradients: the first inputs, the first
 * outputs. */
static inline enum status MUST_CHECK infer_head_loss(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 2));
    TRY(need_rank(c, 1, 2));
    const struct shape *x = &c->in[0].shape, *w = &c->in[1].shape;
    if (shape_last(x) != w->dim[1])
        return REJECT(c, "x has last axis %lld, w has %lld columns", (long long)shape_last(x),
                      (long long)w->dim[1]);
    struct shape rows = shape_without_last(*x);
    TRY(need_dtype(c, 2, DTYPE_I32));
    TRY(need_shape(c, 2, &rows));
    if (call_int(c, HEAD_LOSS_CHUNKS) < 0)
        return REJECT(c, "chunks must not be negative (0: automatic)");
    double smoothing = call_float(c, HEAD_LOSS_SMOOTHING);
    if (!(smoothing >= 0.0 && smoothing < 1.0))
        return REJECT(c, "label_smoothing must be in [0, 1)");
    if (!(call_float(c, HEAD_LOSS_Z) >= 0.0))
        return REJECT(c, "z_loss must not be negative");
    TRY(need_softcap(c, HEAD_LOSS_CAP));
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(1, (int64_t)1));
    out_set(c, 1, dtype_accumulator(c->in[0].dtype), shape_of(1, (int64_t)1));
    return OK;
}

#ifdef __cplusplus
}
#endif
#endif
