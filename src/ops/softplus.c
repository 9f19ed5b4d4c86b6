#include "ops/unary_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        value_id slope = build(b, OP_sigmoid, IN(n->in[0]), NO_ATTRS);
        d_in[0] = build(b, OP_mul, IN(d_out[0], slope), NO_ATTRS);
    }
    return builder_status(b);
}

const struct op_def op_def_softplus = {
    .name = "softplus",
    .synopsis = "y = log(1 + e^x)",
    .grad = grad,
    UNARY_OP(unary_samples),
};
