#include "ops/unary_op.h"

const struct op_def op_def_relu_grad = {
    .name = "relu_grad",
    .synopsis = "dx = dy where x > 0, else 0; relu's y may stand for x",
    UNARY_GRAD_OP(unary_grad_samples),
};
