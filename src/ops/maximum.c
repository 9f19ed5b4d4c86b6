#include "ops/pair_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_minimum_grad, IN(d_out[0], n->in[1], n->in[0]), NO_ATTRS);
    if (wants[1])
        d_in[1] = build(b, OP_minimum_grad, IN(d_out[0], n->in[0], n->in[1]), NO_ATTRS);
    return builder_status(b);
}

const struct op_def op_def_maximum = {
    .name = "maximum",
    .synopsis = "y = the larger of a and b, elementwise",
    .grad = grad,
    PAIR_OP,
};
