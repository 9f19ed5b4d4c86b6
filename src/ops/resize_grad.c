#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    [RESIZE_LINEAR] = {.name = "linear", .type = ATTR_BOOL},
    [RESIZE_SIZE] = {.name = "size", .type = ATTR_INTS, .required = true},
};

static const struct op_sample samples[] = {
    {.text = "f32[1,7,9,3] {size=[3,4]}"},
    {.text = "f32[1,7,9,3] {size=[3,4], linear=true}"},
    {.text = "f32[2,3,2,17] {size=[5,4], linear=true}"},
    {.text = "f32[2,10,3] {size=[5], linear=true}"},
    {.text = "f32[1,4,5,3,2] {size=[2,3,4], linear=true}"},
    {.text = "f32[1,4,5,5] {size=[6,5]}"},
};
static const char *const rejects[] = {
    "f32[2,6] {size=[2]}",         "f32[1,7,9,3]",
    "f32[1,7,9,3] {size=[3]}",     "f32[1,7,9,3] {size=[0,1]}",
    "i32[1,7,9,3]~3 {size=[3,4]}",
};

const struct op_def op_def_resize_grad = {
    .name = "resize_grad",
    .synopsis = "dx[i] = sum over the outputs that read place i of dy and their share in it",
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
