/* dropout.c: which elements are kept is a pure function of (rng, seed, element), the same on every
 * device, so recomputing a node or running it on a gradient draws the same mask. Element e is
 *
 *     bits = philox(key        = rng[0],                the key of the run
 *                   counter_hi = rng[1] * 2^20 + seed,  rng[1] counts micro-steps (mod 2^44)
 *                   counter_lo = e / 4).v[e % 4]
 *     kept = (bits >> 8) * 2^-24 >= p                   compared in f32
 *
 * so nodes of one graph need different seeds, below 2^20. p = 0 is the identity. With `channels`,
 * of x [N, .., C], all places of a sample's channel share one draw, that of e = sample C + channel.
 */
#include "ops/dropout_support.h"

static const struct attr_def attrs[] = {
    [DROPOUT_P] = {.name = "p", .type = ATTR_FLOAT, .required = true},
    [DROPOUT_SEED] = {.name = "seed", .type = ATTR_INT},
    [DROPOUT_CHANNELS] = {.name = "channels", .type = ATTR_BOOL},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_dropout(c, 1, call_float(c, DROPOUT_P), call_int(c, DROPOUT_SEED)));
    if (call_bool(c, DROPOUT_CHANNELS) && c->in[0].shape.rank < 2)
        return REJECT(c, "channels are the last axis of two or more");
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_with(b, OP_dropout, IN(d_out[0], n->in[1]), n->attrs);
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], i64[2]~1000 {p=0.25, seed=3}"},
    {.text = "f32[2,3,17], i64[2]~1000 {p=0.5}"},
    {.text = "f32[2051], i64[2]~1000 {p=0.1, seed=1048575}"},
    {.text = "f32[6], i64[2]~1000 {p=0.0}"},
    {.text = "f32[3,2,5,7], i64[2]~1000 {p=0.4, seed=5, channels=true}"},
    {.text = "f32[4,9], i64[2]~1000 {p=0.5, channels=true}"},
};
static const char *const rejects[] = {
    "f32[3], i64[2] {p=1.0}",
    "f32[3], i64[2] {p=-0.1}",
    "f32[3], i64[3] {p=0.1}",
    "f32[3], i32[2] {p=0.1}",
    "f32[3], i64[2] {p=0.1, seed=1048576}",
    "i32[3], i64[2] {p=0.1}",
    "f32[3], i64[2] {p=0.1, channels=true}",
};

const struct op_def op_def_dropout = {
    .name = "dropout",
    .synopsis = "y = x / (1 - p) where kept, else 0",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
