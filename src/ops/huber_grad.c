#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "delta", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17] {delta=0.5}"},
    {.text = "f32[1025], f32[1025] {delta=2.0}"},
};

const struct op_def op_def_huber_grad = {
    .name = "huber_grad",
    .synopsis = "dx = dy x, with x cut to [-delta, delta]",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    UNARY_GRAD_OP(samples),
};
