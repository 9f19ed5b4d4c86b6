#include "ops/layer_support.h"

enum { EPSILON };

static const struct attr_def attrs[] = {{"epsilon", ATTR_FLOAT, {.f = 1e-5}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 1));
    const struct shape *x = &c->in[0].shape;
    for (int i = 1; i <= 2; i++) {
        if (call_has(c, i))
            TRY(need_weight(c, i, 0, shape_last(x)));
    }
    if (!(call_float(c, EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    out_like(c, 0, 0);
    out_set(c, 1, dtype_accumulator(c->in[0].dtype), shape_without_last(*x));
    out_set(c, 2, dtype_accumulator(c->in[0].dtype), shape_without_last(*x));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 2));
    value_id w = node_input(n, 1), bias = node_input(n, 2);
    value_id dx =
        build(b, OP_layer_norm_grad, IN(d_out[0], n->in[0], w, n->out[1], n->out[2]), NO_ATTRS);
    if (wants[0])
        d_in[0] = dx;
    if (w != VALUE_NONE && wants[1])
        d_in[1] = build_output(b, 1);
    if (bias != VALUE_NONE && wants[2])
        d_in[2] = build_output(b, 2);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 8.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5], f32[5]"},
    {.text = "f32[2,3,33], f32[33], f32[33] {epsilon=0.001}"},
    {.text = "f32[4,17], f32[17], _"},
    {.text = "f32[4,8], _, f32[8]"},
    {.text = "f32[6,64]"},
    {.text = "f32[9], f32[9], f32[9]"},
    {.text = "bf16[4,40], f32[40], f32[40]", .tolerance = 1e-2},
};
static const char *const rejects[] = {"f32[3,5], f32[4], f32[5]", "f32[3,5], f32[5], f32[3]",
                                      "f32[3,5], bf16[5], f32[5]", "i32[3,5]~3, f32[5], f32[5]",
                                      "f32[3,5] {epsilon=-1}"};

const struct op_def op_def_layer_norm = {
    .name = "layer_norm",
    .synopsis = "y = (x - mean) rstd w + b over the last axis, rstd = 1 / sqrt(variance + epsilon)",
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
    .module = MODULE_NORM,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
