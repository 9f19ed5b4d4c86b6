#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "approximate", .type = ATTR_BOOL},
};

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17] {approximate=true}"},
    {.text = "f32[1025], f32[1025]"},
    {.text = "f32[1025], f32[1025] {approximate=true}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4]",
    "f32[3], f64[3]",
    "i32[3], i32[3]",
};

const struct op_def op_def_gelu_grad = {
    .name = "gelu_grad",
    .synopsis = "dx = dy (Phi(x) + x Phi'(x)), Phi as in gelu",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer_unary_grad,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
