#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "approximate", .type = ATTR_BOOL},
};

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_with(b, OP_gelu_grad, IN(d_out[0], n->in[0]), n->attrs);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},  {.text = "f32[2,3,17] {approximate=true}"},
    {.text = "f32[1025]"}, {.text = "f32[1025] {approximate=true}"},
    {.text = "f32[]"},
};

const struct op_def op_def_gelu = {
    .name = "gelu",
    .synopsis = "y = x Phi(x) = x (1 + erf(x / sqrt 2)) / 2; approximate: Phi(x) = (1 + "
                "tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .grad = grad,
    UNARY_OP(samples),
};
