#include "ops/expert_support.h"

static const struct attr_def attrs[] = {{"factor", ATTR_FLOAT, {.f = 1.0}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 2));
    TRY(need_rank(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    struct shape one = shape_of(1, INT64_C(1));
    TRY(need_shape(c, 2, &one));
    if (c->in[0].dtype != dtype_accumulator(c->in[0].dtype))
        return REJECT(c, "sums must be f32 or f64, not %s", dtype_name(c->in[0].dtype));
    out_set(c, 0, c->in[0].dtype, one);
    return OK;
}

/* dp[e] = dy factor count load[e]. */
static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (!wants[0])
        return OK;
    value_id scaled = build(b, OP_scale, IN(d_out[0]),
                            ATTRS({.name = "factor", .f = n->attrs[BALANCE_FACTOR].f}));
    value_id each = build(b, OP_mul, IN(scaled, n->in[2]), NO_ATTRS);
    d_in[0] = build(b, OP_mul, IN(n->in[1], build_reshape(b, each, shape_of(0))), NO_ATTRS);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[4]+, f32[4]+, f32[1]+ {factor=0.25}"},
    {.text = "f32[128], f32[128], f32[1]"},
    {.text = "f32[1], f32[1], f32[1]"},
};
static const char *const rejects[] = {
    "f32[4], f32[3], f32[1]",
    "f32[4], f32[4], f32[2]",
    "bf16[4], bf16[4], bf16[1]",
    "f32[2,4], f32[2,4], f32[1]",
};

const struct op_def op_def_balance_loss = {
    .name = "balance_loss",
    .synopsis = "y = factor count sum over e of load[e] p[e]: probabilities p and loads of experts",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1 | 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
