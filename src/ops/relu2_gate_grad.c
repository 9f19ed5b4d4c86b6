#include "ops/gate_op.h"

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};
static const struct op_sample samples[] = {GATE_GRAD_SAMPLES};
static const char *const rejects[] = {GATE_GRAD_REJECTS};

const struct op_def op_def_relu2_gate_grad = {
    .name = "relu2_gate_grad",
    .synopsis = "dx = [2 dy u max(g, 0), dy max(g, 0)^2], where the last axis of x is [g, u]",
    .n_out = 1,
    GATE_GRAD_OP,
};
