#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    CONV_ATTRS,
    {.name = "kernel", .type = ATTR_INTS, .required = true},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_spatial(c, 0));
    TRY(need_spatial(c, 1));
    int rank = c->in[0].shape.rank - 2;
    TRY(need_conv(c, rank));
    struct conv_dims d = conv_dims_of(c);
    struct shape dy = spatial_shape(&d.window, d.window.out, d.features);
    TRY(need_shape(c, 1, &dy));
    enum dtype dtype;
    TRY(grad_dtype(c, CONV_DTYPE, 0, &dtype));
    struct shape dw = spatial_shape(&d.window, d.window.kernel, d.channels / d.groups);
    dw.dim[0] = d.features;
    TRY(need_accumulator(c, 2, dtype, &dw));
    out_set(c, 0, dtype, dw);
    return OK;
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 2}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[1,7,5,3], f32[1,7,5,4] "
             "{pad_before=[1,1], pad_after=[1,1], kernel=[3,3]}"},
    {.text = "f32[2,6,5,4], f32[2,3,3,6], f32[6,3,2,4] "
             "{stride=[2,2], pad_before=[0,1], pad_after=[1,0], kernel=[3,2]}"},
    {.text = "f32[1,7,6,4], f32[1,5,3,4] "
             "{dilation=[2,3], pad_before=[2,0], groups=2, kernel=[3,2]}"},
    {.text = "f32[2,5,4,6], f32[2,5,4,6] "
             "{pad_before=[1,1], pad_after=[1,1], groups=6, kernel=[3,3]}"},
    {.text = "f32[2,3,3,17], f32[2,3,3,19], f32[19,1,1,17] {kernel=[1,1]}"},
    {.text = "bf16[2,13,3], bf16[2,5,5], f32[5,4,3] "
             "{stride=[3], pad_before=[2], pad_after=[1], kernel=[4], dtype=f32}"},
    {.text = "f32[1,3,4,5,2], f32[1,3,2,5,3] "
             "{stride=[1,2,1], pad_before=[0,1,1], pad_after=[1,1,0], kernel=[2,3,2]}"},
    {.text = "f32[1,2,19,33], f32[1,2,19,70] {pad_before=[0,1], pad_after=[0,1], kernel=[1,3]}"},
};
static const char *const rejects[] = {
    "f32[1,7,5,3], f32[1,7,5,4] {pad_before=[1,1], pad_after=[1,1]}",
    "f32[1,7,5,3], f32[1,7,5,4] {pad_before=[1,1], kernel=[3,3]}",
    "f32[1,7,5,3], f32[1,5,3,4] {kernel=[3]}",
    "f32[1,7,5,3], f32[2,5,3,4] {kernel=[3,3]}",
    "f32[1,7,5,3], f64[1,5,3,4] {kernel=[3,3]}",
    "f32[1,7,5,3], f32[1,5,3,4] {kernel=[3,3], groups=2}",
    "f32[1,7,5,3], f32[1,5,3,4], f32[4,3,3,4] {kernel=[3,3]}",
    "bf16[1,7,5,3], bf16[1,5,3,4], f32[4,3,3,3] {kernel=[3,3]}",
};

const struct op_def op_def_conv_grad_weight = {
    .name = "conv_grad_weight",
    .synopsis =
        "dw[f, k, c] = acc[f, k, c] + sum over n, o of x[n, o stride - pad + k dilation, c] "
        "dy[n, o, f], c of f's group",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    .accumulate_in = 2,
    .accumulate_out = 0,
    .recompute = RECOMPUTE_NORMAL,
    .flops = conv_flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
