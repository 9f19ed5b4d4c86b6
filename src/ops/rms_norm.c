#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    {"epsilon", ATTR_FLOAT, {.f = 1e-6}, false},
    {"offset", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 1));
    TRY(need_weight(c, 1, 0, shape_last(&c->in[0].shape)));
    if (!(call_float(c, RMS_NORM_EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    out_like(c, 0, 0);
    out_set(c, 1, dtype_accumulator(c->in[0].dtype), shape_without_last(c->in[0].shape));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 1));
    value_id dx = build(b, OP_rms_norm_grad, IN(d_out[0], n->in[0], n->in[1], n->out[1]),
                        ATTRS({"offset", .f = n->attrs[RMS_NORM_OFFSET].f}));
    if (wants[0])
        d_in[0] = dx;
    if (wants[1])
        d_in[1] = build_output(b, 1);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5]"},
    {.text = "f32[2,3,33], f32[33] {epsilon=0.001}"},
    {.text = "f32[64], f32[64]"},
    {.text = "bf16[4,40], f32[40]", .tolerance = 1e-2},
    {.text = "f32[3,33], f32[33] {offset=1.0}"},
    {.text = "bf16[4,64], bf16[64] {offset=1.0}", .tolerance = 1e-2},
};
static const char *const rejects[] = {"f32[3,5], f32[4]", "f32[3,5], bf16[5]", "i32[3,5]~3, f32[5]",
                                      "f32[3,5], f32[5] {epsilon=-1}"};

const struct op_def op_def_rms_norm = {
    .name = "rms_norm",
    .synopsis = "y = x rstd (w + offset) over the last axis, rstd = 1 / sqrt(avg(x^2) + epsilon)",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .f32_inputs = 1u << 1,
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
