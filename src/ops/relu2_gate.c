#include "ops/gate_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_relu2_gate_grad, IN(d_out[0], n->in[0]), NO_ATTRS);
    return builder_status(b);
}

static const struct op_sample samples[] = {GATE_SAMPLES};
static const char *const rejects[] = {GATE_REJECTS};

const struct op_def op_def_relu2_gate = {
    .name = "relu2_gate",
    .synopsis = "y = max(g, 0)^2 u, where the last axis of x is [g, u]",
    .grad = grad,
    GATE_OP,
};
