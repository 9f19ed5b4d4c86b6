#include "ops/unary_op.h"

const struct op_def op_def_silu_grad = {
    .name = "silu_grad",
    .synopsis = "dx = dy s (1 + x (1 - s)), s = 1 / (1 + e^-x)",
    UNARY_GRAD_OP(unary_grad_samples),
};
