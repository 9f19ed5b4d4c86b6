#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "alpha", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17] {alpha=0.7}"},
    {.text = "f32[1025], f32[1025] {alpha=2.0}"},
};

const struct op_def op_def_elu_grad = {
    .name = "elu_grad",
    .synopsis = "dx = dy where x > 0, else dy alpha e^x",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    UNARY_GRAD_OP(samples),
};
