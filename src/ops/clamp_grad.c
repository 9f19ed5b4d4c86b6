#include "ops/unary_op.h"

static const struct attr_def attrs[] = {
    {.name = "limit", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17] {limit=0.5}"},
    {.text = "f32[1025], f32[1025] {limit=2.0}"},
};

const struct op_def op_def_clamp_grad = {
    .name = "clamp_grad",
    .synopsis = "dx = dy where |x| <= limit, else 0",
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    UNARY_GRAD_OP(samples),
};
