#include "ops/window_support.h"

static const struct attr_def attrs[] = {{.name = "size", .type = ATTR_INTS, .required = true}};

static const struct op_sample samples[] = {
    {.text = "f32[1,3,4,3] {size=[7,9]}"}, {.text = "f32[2,2,3,17] {size=[4,6]}"},
    {.text = "f32[2,4,5] {size=[11]}"},    {.text = "f32[1,2,2,2,2] {size=[3,4,5]}"},
    {.text = "f32[1,3,5,4] {size=[2,3]}"},
};
static const char *const rejects[] = {
    "f32[2,6] {size=[2]}",         "f32[1,7,9,3]",
    "f32[1,7,9,3] {size=[3]}",     "f32[1,7,9,3] {size=[0,1]}",
    "i32[1,7,9,3]~3 {size=[3,4]}",
};

const struct op_def op_def_adaptive_avg_pool_grad = {
    .name = "adaptive_avg_pool_grad",
    .synopsis = "dx[i] = sum over the bins that have place i of dy / the bin's size",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer_resized,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
