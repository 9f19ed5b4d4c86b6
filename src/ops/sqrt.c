#include "ops/unary_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        value_id quotient = build(b, OP_div, IN(d_out[0], n->out[0]), NO_ATTRS);
        d_in[0] = build(b, OP_scale, IN(quotient), ATTRS({"factor", .f = 0.5}));
    }
    return builder_status(b);
}

const struct op_def op_def_sqrt = {
    .name = "sqrt",
    .synopsis = "y = sqrt(x)",
    .grad = grad,
    UNARY_OP(unary_positive_samples),
};
