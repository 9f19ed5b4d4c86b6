#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    [RESIZE_LINEAR] = {.name = "linear", .type = ATTR_BOOL},
    [RESIZE_SIZE] = {.name = "out", .type = ATTR_INTS, .required = true},
};

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_pool_grad(b, OP_resize_grad, IN(d_out[0]), n);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return (call_bool(c, RESIZE_LINEAR) ? 8.0 : 1.0) * (double)shape_elems(&c->out[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[1,3,4,3] {out=[7,9]}"},
    {.text = "f32[1,3,4,3] {out=[7,9], linear=true}"},
    {.text = "f32[2,5,4,17] {out=[3,2], linear=true}"},
    {.text = "f32[2,5,3] {out=[10], linear=true}"},
    {.text = "f32[1,2,3,4,2] {out=[4,5,3], linear=true}"},
    {.text = "f32[1,6,5,5] {out=[4,5]}"},
};
static const char *const rejects[] = {
    "f32[2,6] {out=[2]}",         "f32[1,7,9,3]",
    "f32[1,7,9,3] {out=[3]}",     "f32[1,7,9,3] {out=[0,1]}",
    "i32[1,7,9,3]~3 {out=[3,4]}",
};

const struct op_def op_def_resize = {
    .name = "resize",
    .synopsis =
        "y[o] = x at (o + 1/2) n / out - 1/2 along each axis (linear), or x[floor(o n / out)]",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer_resized,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
