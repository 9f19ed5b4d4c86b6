#include "ops/channel_norm_support.h"

enum { EPSILON };

static const struct attr_def attrs[] = {{"epsilon", ATTR_FLOAT, {.f = 1e-5}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_channel_norm(c));
    if (!(call_float(c, EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    enum dtype statistics = dtype_accumulator(c->in[0].dtype);
    out_like(c, 0, 0);
    out_set(c, 1, statistics, shape_of(1, shape_last(&c->in[0].shape)));
    out_set(c, 2, statistics, shape_of(1, shape_last(&c->in[0].shape)));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    return build_norm_grad(b, OP_batch_norm_grad, n, d_out, wants, d_in);
}

static double flops(const struct op_call *c)
{
    return 8.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5], f32[5]"},
    {.text = "f32[2,3,4,33], f32[33], f32[33] {epsilon=0.001}"},
    {.text = "f32[4,7,17], f32[17], _"},
    {.text = "f32[5,8], _, f32[8]"},
    {.text = "f32[300,6]"},
    {.text = "bf16[9,2,40], f32[40], f32[40]", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[4], f32[5]",
    "f32[3,5], f32[5], f32[3]",
    "f32[3,5], bf16[5], f32[5]",
    "i32[3,5]~3, f32[5], f32[5]",
    "f32[3,5] {epsilon=-1}",
    "f32[5]",
    "f32[0,5]",
};

const struct op_def op_def_batch_norm = {
    .name = "batch_norm",
    .synopsis = "y = (x - mean) rstd gamma + beta by channel, rstd = 1 / sqrt(variance + epsilon); "
                "over all axes but the "
                "last",
    .min_in = 1,
    .max_in = 3,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
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
