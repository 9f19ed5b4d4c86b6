#include "ops/gate_op.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_gelu_gate_grad, IN(d_out[0], n->in[0]), NO_ATTRS);
    return builder_status(b);
}

static const struct op_sample samples[] = {GATE_SAMPLES};
static const char *const rejects[] = {GATE_REJECTS};

const struct op_def op_def_gelu_gate = {
    .name = "gelu_gate",
    .synopsis = "y = gelu(g) u, where the last axis of x is [g, u], gelu by tanh",
    .grad = grad,
    GATE_OP,
};
