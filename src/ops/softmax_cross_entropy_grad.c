#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    {.name = "label_smoothing", .type = ATTR_FLOAT},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 1));
    TRY(need_min_rank(c, 1, 1));
    struct shape rows = shape_without_last(c->in[1].shape);
    enum dtype sums = dtype_accumulator(c->in[1].dtype);
    TRY(need_dtype(c, 0, sums));
    TRY(need_shape(c, 0, &rows));
    TRY(need_dtype(c, 2, DTYPE_I32));
    TRY(need_shape(c, 2, &rows));
    TRY(need_dtype(c, 3, sums));
    TRY(need_shape(c, 3, &rows));
    out_like(c, 0, 1);
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    return shape_last(&c->in[1].shape);
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[1].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[5], f32[5,7], i32[5]~7, f32[5]=3"},
    {.text = "f32[2,3], f32[2,3,33], i32[2,3]~-1:33, f32[2,3]=5"},
    {.text = "f32[9], f32[9,11], i32[9]~-1:11, f32[9]=3 {label_smoothing=0.1}"},
    {.text = "f32[3], f32[3,1300], i32[3]~1300, f32[3]=8"},
};
static const char *const rejects[] = {
    "f32[5], f32[5,7], i32[5]~7, f32[4]",
    "f32[4], f32[5,7], i32[5]~7, f32[5]",
    "f32[5], f32[5,7], f32[5], f32[5]",
};

const struct op_def op_def_softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .synopsis = "dx[j] = dy (e^(x[j] - lse) - (1-e) [j = t] - e / n), 0 for labels t below 0",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
