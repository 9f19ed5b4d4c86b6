#include "ops/window_support.h"

static const struct attr_def attrs[] = {{.name = "out", .type = ATTR_INTS, .required = true}};

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_pool_grad(b, OP_adaptive_avg_pool_grad, IN(d_out[0]), n);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[1,7,9,3] {out=[3,4]}"}, {.text = "f32[2,4,6,17] {out=[2,3]}"},
    {.text = "f32[2,11,5] {out=[4]}"},    {.text = "f32[1,3,4,5,2] {out=[2,2,2]}"},
    {.text = "f32[1,2,3,4] {out=[3,5]}"},
};
static const char *const rejects[] = {
    "f32[2,6] {out=[2]}",         "f32[1,7,9,3]",
    "f32[1,7,9,3] {out=[3]}",     "f32[1,7,9,3] {out=[0,1]}",
    "i32[1,7,9,3]~3 {out=[3,4]}",
};

const struct op_def op_def_adaptive_avg_pool = {
    .name = "adaptive_avg_pool",
    .synopsis = "y[o] = average of x over bin o: floor(o n / out) .. ceil((o + 1) n / out) - 1 "
                "along each axis",
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
