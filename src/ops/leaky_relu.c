#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "slope", .type = ATTR_FLOAT, .value = {.f = 0.01}},
};

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_with(b, OP_leaky_relu_grad, IN(d_out[0], n->in[0]), n->attrs);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,3,17] {slope=0.2}"},
    {.text = "f32[1025] {slope=0.01}"},
    {.text = "f32[] {slope=0.5}"},
};

const struct op_def op_def_leaky_relu = {
    .name = "leaky_relu",
    .synopsis = "y = x where x > 0, else slope x",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .grad = grad,
    UNARY_OP(samples),
};
