#include "ops/channel_norm_support.h"

enum { EPSILON };

static const struct attr_def attrs[] = {{"epsilon", ATTR_FLOAT, {.f = 1e-5}, false}};

static enum status infer(const struct op_call *c)
{
    struct shape channels = shape_of(1, shape_last(&c->in[0].shape));
    TRY(need_channel_norm(c));
    if (!call_has(c, 4))
        return REJECT(c, "the variance must be given");
    for (int i = 3; i <= 4; i++) {
        if (call_has(c, i))
            TRY(need_statistics(c, i, 0, &channels));
    }
    if (!(call_float(c, EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    out_like(c, 0, 0);
    return OK;
}

/* With fixed statistics y is linear in x: dx is the op itself without mean and beta, and h, which
 * dgamma is made of, the op without gamma and beta. */
static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], gamma = n->in[1], beta = n->in[2], mean = n->in[3], var = n->in[4];
    if (wants[0])
        d_in[0] = build_with(b, OP_batch_norm_inference, IN(dy, gamma, VALUE_NONE, VALUE_NONE, var),
                             n->attrs);
    if (gamma != VALUE_NONE && wants[1]) {
        value_id h = build_with(b, OP_batch_norm_inference,
                                IN(n->in[0], VALUE_NONE, VALUE_NONE, mean, var), n->attrs);
        d_in[1] = sum_to_shape_of(b, build(b, OP_mul, IN(dy, h), NO_ATTRS), gamma);
    }
    if (beta != VALUE_NONE && wants[2])
        d_in[2] = sum_to_shape_of(b, dy, beta);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5], f32[5], f32[5], f32[5]+"},
    {.text = "f32[2,3,4,33], f32[33], f32[33], f32[33], f32[33]+ {epsilon=0.001}"},
    {.text = "f32[4,7,17], f32[17], _, _, f32[17]+"},
    {.text = "f32[5,8], _, f32[8], f32[8], f32[8]+"},
    {.text = "bf16[9,2,40], f32[40], f32[40], f32[40], f32[40]+", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[5], f32[5], f32[4], f32[5]",
    "f32[3,5], f32[5], f32[5], f32[5], f64[5]",
    "f32[3,5], f32[3], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[5], f32[5], f32[5], f32[5] {epsilon=-1}",
};

const struct op_def op_def_batch_norm_inference = {
    .name = "batch_norm_inference",
    .synopsis =
        "y = (x - mean) gamma / sqrt(var + epsilon) + beta by channel, the statistics given",
    .min_in = 1,
    .max_in = 5,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 3 | 1u << 4,
    .f32_inputs = 1u << 1 | 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
