#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "limit", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static enum status infer(const struct op_call *c)
{
    if (!(call_float(c, 0) > 0))
        return REJECT(c, "limit must be positive");
    return infer_unary(c);
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_with(b, OP_clamp_grad, IN(d_out[0], n->in[0]), n->attrs);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,3,17] {limit=0.5}"},
    {.text = "f32[1025] {limit=1.0}"},
    {.text = "f32[] {limit=2.0}"},
};

const struct op_def op_def_clamp = {
    .name = "clamp",
    .synopsis = "y = x, cut to [-limit, limit]",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .grad = grad,
    UNARY_OP_OF(infer, samples),
};
