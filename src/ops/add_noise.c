/* add_noise.c: the noise of an element is a pure function of (rng, seed, element), drawn as
 * dropout draws (dropout.c), so that a recomputed node adds what it added before:
 *
 *     bits  = philox(rng[0], rng[1] * 2^20 + seed, e / 4).v[e % 4]
 *     noise = magnitude ((bits >> 8) 2^-23 - 1)      uniform in [-magnitude, magnitude)
 */
#include "ops/dropout_support.h"

static const struct attr_def attrs[] = {
    [NOISE_MAGNITUDE] = {.name = "magnitude", .type = ATTR_FLOAT, .required = true},
    [NOISE_SEED] = {.name = "seed", .type = ATTR_INT},
};

static enum status infer(const struct op_call *c)
{
    double magnitude = call_float(c, NOISE_MAGNITUDE);
    TRY(need_float(c, 0));
    if (!(magnitude >= 0.0 && magnitude <= 3e38))
        return REJECT(c, "magnitude is %g; it must not be negative", magnitude);
    TRY(need_dropout(c, 1, 0.0, call_int(c, NOISE_SEED)));
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    (void)n;
    if (wants[0])
        d_in[0] = d_out[0];
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], i64[2]~1000 {magnitude=0.25, seed=3}"},
    {.text = "f32[2,3,17], i64[2]~1000 {magnitude=1.5}"},
    {.text = "f32[2051], i64[2]~1000 {magnitude=0.1, seed=1048575}"},
    {.text = "f32[6], i64[2]~1000 {magnitude=0.0}"},
};
static const char *const rejects[] = {
    "f32[3], i64[2] {magnitude=-1.0}", "f32[3], i64[3] {magnitude=0.1}",
    "f32[3], i32[2] {magnitude=0.1}",  "f32[3], i64[2] {magnitude=0.1, seed=1048576}",
    "i32[3], i64[2] {magnitude=0.1}",
};

const struct op_def op_def_add_noise = {
    .name = "add_noise",
    .synopsis = "y = x + magnitude u, u uniform in [-1, 1)",
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
