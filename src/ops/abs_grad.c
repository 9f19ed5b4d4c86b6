#include "ops/unary_op.h"

const struct op_def op_def_abs_grad = {
    .name = "abs_grad",
    .synopsis = "dx = dy sign(x), 0 where x = 0",
    UNARY_GRAD_OP(unary_grad_samples),
};
