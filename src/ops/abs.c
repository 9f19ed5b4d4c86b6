#include "ops/unary_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_abs_grad, IN(d_out[0], n->in[0]), NO_ATTRS);
    return builder_status(b);
}

const struct op_def op_def_abs = {
    .name = "abs",
    .synopsis = "y = |x|",
    .grad = grad,
    UNARY_OP(unary_samples),
};
