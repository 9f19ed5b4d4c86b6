#include "ops/pair_op.h"

/* Targets are data: no gradient goes to them. */
static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_bce_with_logits_grad, IN(d_out[0], n->in[0], n->in[1]), NO_ATTRS);
    return builder_status(b);
}

const struct op_def op_def_bce_with_logits = {
    .name = "bce_with_logits",
    .synopsis = "y = max(x, 0) - x t + log(1 + e^-|x|): binary cross-entropy of sigmoid(x) with t",
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    PAIR_OP,
};
