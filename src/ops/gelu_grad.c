#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "approximate", .type = ATTR_BOOL},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17] {approximate=true}"},
    {.text = "f32[1025], f32[1025]"},
    {.text = "f32[1025], f32[1025] {approximate=true}"},
};

const struct op_def op_def_gelu_grad = {
    .name = "gelu_grad",
    .synopsis = "dx = dy (Phi(x) + x Phi'(x)), Phi as in gelu",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    UNARY_GRAD_OP(samples),
};
