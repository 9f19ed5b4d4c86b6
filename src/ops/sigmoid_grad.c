#include "ops/unary_op.h"

const struct op_def op_def_sigmoid_grad = {
    .name = "sigmoid_grad",
    .synopsis = "dx = dy y (1 - y)",
    UNARY_GRAD_OP(unary_grad_samples),
};
