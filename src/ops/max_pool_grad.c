#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    POOL_ATTRS,
    {.name = "size", .type = ATTR_INTS, .required = true},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_spatial(c, 0));
    int rank = c->in[0].shape.rank - 2;
    TRY(need_axes(c, MAX_POOL_SIZE, rank, 1));
    TRY(need_pool(c, rank));
    struct window w = pool_window(c);
    TRY(need_few_places(c, &w));
    struct shape dy = spatial_shape(&w, w.out, shape_last(&c->in[0].shape));
    TRY(need_shape(c, 0, &dy));
    TRY(need_dtype(c, 1, DTYPE_U8));
    TRY(need_shape(c, 1, &dy));
    out_set(c, 0, c->in[0].dtype, spatial_shape(&w, w.size, shape_last(&dy)));
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    struct window w = pool_window(c);
    return window_places(w.kernel);
}

static const struct op_sample samples[] = {
    {.text = "f32[1,3,2,3], u8[1,3,2,3]~4:6 {kernel=[3,3], stride=[2,2], pad_before=[1,1], "
             "pad_after=[1,0], size=[6,4]}"},
    {.text = "f32[2,3,2,17], u8[2,3,2,17]~4 {kernel=[2,2], stride=[2,2], size=[6,4]}"},
    {.text = "f32[2,7,5], u8[2,7,5]~3 {kernel=[3], size=[9]}"},
    {.text = "f32[1,3,2,3,2], u8[1,3,2,3,2]~12 {kernel=[2,3,2], stride=[1,2,1], size=[4,5,4]}"},
};
static const char *const rejects[] = {
    "f32[1,3,2,3], u8[1,3,2,3] {kernel=[2,2], stride=[2,2]}",
    "f32[1,3,2,3], u8[1,3,2,3] {kernel=[2,2], stride=[2,2], size=[8,4]}",
    "f32[1,3,2,3], i32[1,3,2,3]~3 {kernel=[2,2], stride=[2,2], size=[6,4]}",
    "f32[1,3,2,3], u8[1,3,2,4] {kernel=[2,2], stride=[2,2], size=[6,4]}",
    "f32[3,2], u8[3,2] {kernel=[2], size=[4]}",
};

const struct op_def op_def_max_pool_grad = {
    .name = "max_pool_grad",
    .synopsis = "dx = sum of the dy whose windows have their largest element here",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
