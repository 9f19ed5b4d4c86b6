#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "slope", .type = ATTR_FLOAT, .value = {.f = 0.01}},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17] {slope=0.2}"},
    {.text = "f32[1025], f32[1025] {slope=0.5}"},
};

const struct op_def op_def_leaky_relu_grad = {
    .name = "leaky_relu_grad",
    .synopsis = "dx = dy where x > 0, else slope dy",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    UNARY_GRAD_OP(samples),
};
