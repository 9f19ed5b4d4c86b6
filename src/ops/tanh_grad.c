#include "ops/unary_op.h"

const struct op_def op_def_tanh_grad = {
    .name = "tanh_grad",
    .synopsis = "dx = dy (1 - y^2)",
    UNARY_GRAD_OP(unary_grad_samples),
};
