#include "ops/gate_op.h"

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 1}, {ALIAS_MAY, 1, 0}, {ALIAS_NONE, 0, 0}};
static const struct op_sample samples[] = {GATE_GRAD_SAMPLES};
static const char *const rejects[] = {GATE_GRAD_REJECTS};

const struct op_def op_def_relu2_gate_with_grad = {
    .name = "relu2_gate_with_grad",
    .synopsis = "dx as relu2_gate_grad, y as relu2_gate: x is read once for both",
    .n_out = 2,
    GATE_GRAD_OP,
};
