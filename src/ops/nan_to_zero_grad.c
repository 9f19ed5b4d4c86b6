#include "ops/unary_op.h"

const struct op_def op_def_nan_to_zero_grad = {
    .name = "nan_to_zero_grad",
    .synopsis = "dx = dy, 0 where x is not a number",
    UNARY_GRAD_OP(unary_grad_samples),
};
