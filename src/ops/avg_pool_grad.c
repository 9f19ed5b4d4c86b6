#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    POOL_ATTRS,
    {.name = "count_padding", .type = ATTR_BOOL, .value = {.i = 1}},
    {.name = "size", .type = ATTR_INTS, .required = true},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_spatial(c, 0));
    int rank = c->in[0].shape.rank - 2;
    TRY(need_axes(c, AVG_POOL_SIZE, rank, 1));
    TRY(need_pool(c, rank));
    struct window w = pool_window(c);
    struct shape dy = spatial_shape(&w, w.out, shape_last(&c->in[0].shape));
    TRY(need_shape(c, 0, &dy));
    out_set(c, 0, c->in[0].dtype, spatial_shape(&w, w.size, shape_last(&dy)));
    return OK;
}

static double flops(const struct op_call *c)
{
    struct window w = pool_window(c);
    return (double)shape_elems(&c->in[0].shape) * (double)window_places(w.kernel);
}

static const struct op_sample samples[] = {
    {.text = "f32[1,4,3,3] {kernel=[3,3], stride=[2,2], pad_before=[1,1], pad_after=[1,1], "
             "size=[7,6]}"},
    {.text = "f32[1,4,3,3] {kernel=[3,3], stride=[2,2], pad_before=[1,1], pad_after=[1,1], "
             "count_padding=false, size=[7,6]}"},
    {.text = "f32[2,3,2,17] {kernel=[2,2], stride=[2,2], size=[6,4]}"},
    {.text = "f32[2,7,5] {kernel=[3], size=[9]}"},
    {.text = "f32[1,2,2,4,2] {kernel=[2,3,2], stride=[2,2,1], pad_before=[0,1,1], "
             "pad_after=[1,0,0], count_padding=false, size=[4,5,4]}"},
};
static const char *const rejects[] = {
    "f32[1,4,3,3] {kernel=[3,3], stride=[2,2]}",
    "f32[1,4,3,3] {kernel=[3,3], stride=[2,2], size=[7,6]}",
    "f32[2,7] {kernel=[3], size=[9]}",
    "i32[2,7,5]~3 {kernel=[3], size=[9]}",
};

const struct op_def op_def_avg_pool_grad = {
    .name = "avg_pool_grad",
    .synopsis = "dx = sum over the windows that have this place of dy / their count",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
