#include "ops/unary_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_nan_to_zero_grad, IN(d_out[0], n->in[0]), NO_ATTRS);
    return builder_status(b);
}

const struct op_def op_def_nan_to_zero = {
    .name = "nan_to_zero",
    .synopsis = "y = x, 0 where x is not a number",
    .grad = grad,
    UNARY_OP(unary_samples),
};
