#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "alpha", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_with(b, OP_elu_grad, IN(d_out[0], n->in[0]), n->attrs);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,3,17] {alpha=0.7}"},
    {.text = "f32[1025] {alpha=1.0}"},
    {.text = "f32[] {alpha=2.0}"},
};

const struct op_def op_def_elu = {
    .name = "elu",
    .synopsis = "y = x where x > 0, else alpha (e^x - 1)",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .grad = grad,
    UNARY_OP(samples),
};
