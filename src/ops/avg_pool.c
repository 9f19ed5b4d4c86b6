#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    POOL_ATTRS,
    {.name = "count_padding", .type = ATTR_BOOL, .value = {.i = 1}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_spatial(c, 0));
    TRY(need_pool(c, c->in[0].shape.rank - 2));
    struct window w = pool_window(c);
    out_set(c, 0, c->in[0].dtype, spatial_shape(&w, w.out, shape_last(&c->in[0].shape)));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_pool_grad(b, OP_avg_pool_grad, IN(d_out[0]), n);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    struct window w = pool_window(c);
    return (double)shape_elems(&c->out[0].shape) * (double)window_places(w.kernel);
}

static const struct op_sample samples[] = {
    {.text = "f32[1,7,6,3] {kernel=[3,3], stride=[2,2], pad_before=[1,1], pad_after=[1,1]}"},
    {.text = "f32[1,7,6,3] {kernel=[3,3], stride=[2,2], pad_before=[1,1], pad_after=[1,1], "
             "count_padding=false}"},
    {.text = "f32[2,6,4,17] {kernel=[2,2], stride=[2,2]}"},
    {.text = "f32[2,9,5] {kernel=[3]}"},
    {.text = "f32[1,4,5,4,2] {kernel=[2,3,2], stride=[2,2,1], pad_before=[0,1,1], "
             "pad_after=[1,0,0], count_padding=false}"},
};
static const char *const rejects[] = {
    "f32[2,6] {kernel=[2]}",       "f32[1,7,6,3]",
    "f32[1,7,6,3] {kernel=[3]}",   "f32[1,7,6,3] {kernel=[3,3], pad_after=[3,0]}",
    "f32[1,7,6,3] {kernel=[8,1]}", "i32[1,7,6,3]~3 {kernel=[3,3]}",
};

const struct op_def op_def_avg_pool = {
    .name = "avg_pool",
    .synopsis =
        "y = sum of x over the window / its places (count_padding), or those that are inside of x",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
