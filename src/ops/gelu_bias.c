#include "ops/layer_support.h"

enum { APPROXIMATE };

static const struct attr_def attrs[] = {
    {.name = "approximate", .type = ATTR_BOOL},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 1));
    TRY(need_weight(c, 1, 0, shape_last(&c->in[0].shape)));
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dx = build(b, OP_gelu_bias_grad, IN(d_out[0], n->in[0], n->in[1]),
                        ATTRS({"approximate", .i = n->attrs[APPROXIMATE].i}));
    if (wants[0])
        d_in[0] = dx;
    if (wants[1])
        d_in[1] = build_output(b, 1);
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5]"},
    {.text = "f32[2,3,17], f32[17] {approximate=true}"},
    {.text = "f32[2,1026], f32[1026]"},
    {.text = "f32[2,1026], f32[1026] {approximate=true}"},
    {.text = "f32[9,64], f32[64] {approximate=true}"},
    {.text = "f32[7], f32[7]"},
    {.text = "bf16[4,40], f32[40] {approximate=true}", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3]",   "f32[3,5], f32[3,5]", "f32[3,5], bf16[5]",
    "i32[3,5]~4, f32[5]", "f32[], f32[1]",
};

const struct op_def op_def_gelu_bias = {
    .name = "gelu_bias",
    .synopsis = "y[..., c] = gelu(x[..., c] + bias[c])",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .f32_inputs = 1u << 1,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
