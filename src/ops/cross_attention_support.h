/* cross_attention_support.h: what attention between two sequences and its gradient share: the
 * layouts of both, attributes, checks.
 *
 * One row per query and one per key, D = head_dim:
 *
 *     q:  | q head 0 | ... | q head H-1 |
 *     kv: | k head 0 | ... | k head KV-1 | v head 0 | ... | v head KV-1 |
 *
 * Query head h reads key/value head h / (H / KV). A mask has a number for each key: 0 says that it
 * is padding, which nobody sees. Whatever a padded key and its value hold, not a number among it,
 * no output and no gradient depends on it; its own gradient is 0.
 */
#ifndef SNUG_OPS_CROSS_ATTENTION_SUPPORT_H
#define SNUG_OPS_CROSS_ATTENTION_SUPPORT_H

#include "ops/attention_dropout.h"
#include "ops/layer_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CROSS_SCALE = QKV_N_ATTRS, CROSS_DROPOUT, CROSS_SEED };
#define CROSS_ATTENTION_ATTRS                            \
    QKV_ATTRS, {"scale", ATTR_FLOAT, {.f = 0.0}, false}, \
        {"dropout", ATTR_FLOAT, {.f = 0.0}, false},      \
    {                                                    \
        "seed", ATTR_INT, {.i = 0}, false                \
    }

/* Inputs. The gradient has dout before the first and the forward pass's outputs behind kv. */
enum { CROSS_Q, CROSS_KV, CROSS_MASK, CROSS_RNG };
enum {
    CROSS_GRAD_DOUT,
    CROSS_GRAD_Q,
    CROSS_GRAD_KV,
    CROSS_GRAD_OUT,
    CROSS_GRAD_LSE,
    CROSS_GRAD_MASK,
    CROSS_GRAD_RNG
};

struct cross_dims {
    int64_t batch, n_queries, n_keys;
    int64_t heads, kv_heads, head_dim;
};

/* Queries are input i_q, keys and values the next. Meaningful only for calls that were accepted. */
static inline struct cross_dims cross_dims_of(const struct op_call *c, int i_q)
{
    const struct shape *q = &c->in[i_q].shape, *kv = &c->in[i_q + 1].shape;
    struct cross_dims d;
    d.batch = q->dim[0];
    d.n_queries = q->dim[1];
    d.n_keys = kv->dim[1];
    d.heads = call_int(c, QKV_HEADS);
    d.kv_heads = call_int(c, QKV_KV_HEADS) ? call_int(c, QKV_KV_HEADS) : d.heads;
    d.head_dim = call_int(c, QKV_HEAD_DIM);
    if (d.head_dim == 0 && d.heads > 0)
        d.head_dim = q->dim[2] / d.heads;
    return d;
}

static inline enum status MUST_CHECK cross_check_heads(const struct op_call *c, int i_q,
                                                       const struct cross_dims *d)
{
    int64_t q = c->in[i_q].shape.dim[2], kv = c->in[i_q + 1].shape.dim[2];
    if (d->heads < 1 || d->kv_heads < 1 || d->head_dim < 1)
        return REJECT(c, "heads, kv_heads and head_dim must be positive");
    if (d->heads % d->kv_heads != 0)
        return REJECT(c, "%lld heads are no multiple of %lld kv_heads", (long long)d->heads,
                      (long long)d->kv_heads);
    if (q != d->heads * d->head_dim)
        return REJECT(c, "q has last axis %lld, but heads * head_dim is %lld", (long long)q,
                      (long long)(d->heads * d->head_dim));
    if (kv != 2 * d->kv_heads * d->head_dim)
        return REJECT(c, "kv has last axis %lld, but 2 kv_heads * head_dim is %lld", (long long)kv,
                      (long long)(2 * d->kv_heads * d->head_dim));
    return OK;
}

/* The random state comes behind the mask, input i_mask. */
static inline enum status MUST_CHECK cross_check_options(const struct op_call *c, int i_mask,
                                                         const struct cross_dims *d)
{
    struct shape mask = shape_of(2, d->batch, d->n_keys);
    if (call_has(c, i_mask)) {
        TRY(need_dtype(c, i_mask, DTYPE_I32));
        TRY(need_shape(c, i_mask, &mask));
    }
    TRY(need_dropout(c, i_mask + 1, call_float(c, CROSS_DROPOUT), call_int(c, CROSS_SEED)));
    if (call_float(c, CROSS_DROPOUT) > 0.0 && !call_has(c, i_mask + 1))
        return REJECT(c, "dropout needs a random state, input %d", i_mask + 1);
    return OK;
}

static inline enum status MUST_CHECK cross_check(const struct op_call *c, int i_q, int i_mask,
                                                 struct cross_dims *d)
{
    memset(d, 0, sizeof(*d));
    TRY(need_same_float(c, i_q, i_q + 1));
    TRY(need_rank(c, i_q, 3));
    TRY(need_rank(c, i_q + 1, 3));
    if (c->in[i_q].shape.dim[0] != c->in[i_q + 1].shape.dim[0])
        return REJECT(c, "q has %lld samples, kv has %lld", (long long)c->in[i_q].shape.dim[0],
                      (long long)c->in[i_q + 1].shape.dim[0]);
    for (int k = QKV_HEADS; k <= QKV_HEAD_DIM; k++) {
        if (call_int(c, k) < 0 || call_int(c, k) > QKV_MOST)
            return REJECT(c, "heads, kv_heads and head_dim must be from 0 to %d", QKV_MOST);
    }
    *d = cross_dims_of(c, i_q);
    TRY(cross_check_heads(c, i_q, d));
    return cross_check_options(c, i_mask, d);
}

/* The factor on the scores: the attribute, or 1/sqrt(head_dim) where it is 0. */
static inline double cross_scale(const struct op_call *c, const struct cross_dims *d)
{
    double scale = call_float(c, CROSS_SCALE);
    return scale == 0.0 ? 1.0 / sqrt((double)d->head_dim) : scale;
}

/* Squares of draws are counted as if both sequences were as long as the longer one: a sequence that
 * attends to itself drops what `attention` would. */
static inline struct attention_dropout cross_dropout_of(const struct op_call *c, int i_rng,
                                                        const struct cross_dims *d)
{
    return attention_dropout_by(c, i_rng, CROSS_DROPOUT, MAX(d->n_queries, d->n_keys));
}

/* Multiply-adds of `products` matrix products over all pairs. */
static inline double cross_flops(const struct cross_dims *d, double products)
{
    return 2.0 * products * (double)d->n_queries * (double)d->n_keys *
           (double)(d->batch * d->heads * d->head_dim);
}

/* Numbers of a mask in timings: hardly any of them is 0, as if nothing was padded. */
static inline int64_t cross_index_limit(const struct op_call *c)
{
    (void)c;
    return INT64_C(1) << 20;
}

#ifdef __cplusplus
}
#endif
#endif
