#include "ops/expert_support.h"

static const struct attr_def attrs[] = {{"factor", ATTR_FLOAT, {.f = 1.0}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 2));
    struct shape one = shape_of(1, INT64_C(1));
    TRY(need_shape(c, 1, &one));
    if (c->in[0].dtype != dtype_accumulator(c->in[0].dtype))
        return REJECT(c, "logits must be f32 or f64, not %s", dtype_name(c->in[0].dtype));
    if (c->in[0].shape.dim[1] < 1)
        return REJECT(c, "there are no logits");
    out_set(c, 0, c->in[0].dtype, one);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_square_lse_grad, IN(d_out[0], n->in[0], n->in[1]),
                        ATTRS({.name = "factor", .f = n->attrs[BALANCE_FACTOR].f}));
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 5.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[5,4], f32[1]+ {factor=0.5}"},
    {.text = "f32[40,33], f32[1]+"},
    {.text = "f32[3,1], f32[1]"},
};
static const char *const rejects[] = {
    "f32[5], f32[1]",
    "f32[5,4], f32[2]",
    "bf16[5,4], bf16[1]",
};

const struct op_def op_def_square_lse = {
    .name = "square_lse",
    .synopsis = "y = factor count sum over rows n of (log sum_e e^z[n, e])^2",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
