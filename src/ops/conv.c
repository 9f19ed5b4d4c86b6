#include "ops/window_support.h"

static const struct attr_def attrs[] = {CONV_ATTRS};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 2));
    TRY(need_spatial(c, 0));
    int rank = c->in[0].shape.rank - 2;
    TRY(need_conv(c, rank));
    struct conv_dims d = conv_dims_of(c);
    if (shape_last(&c->in[1].shape) * d.groups != d.channels)
        return REJECT(c, "x has %lld channels, w has %lld in each of %lld groups",
                      (long long)d.channels, (long long)shape_last(&c->in[1].shape),
                      (long long)d.groups);
    struct shape bias = shape_of(1, d.features);
    if (call_has(c, 2))
        TRY(need_shape(c, 2, &bias));
    out_set(c, 0, c->in[0].dtype, spatial_shape(&d.window, d.window.out, d.features));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], bias = node_input(n, 2);
    if (wants[0])
        d_in[0] = build_conv_grad_input(b, dy, n->in[1], n->attrs, build_shape(b, n->in[0]));
    if (wants[1])
        d_in[1] = build_conv_grad_weight(b, n->in[0], dy, n->attrs, build_shape(b, n->in[1]));
    if (bias != VALUE_NONE && wants[2])
        d_in[2] = sum_to_shape_of(b, dy, bias);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[1,7,5,3], f32[4,3,3,3], f32[4] {pad_before=[1,1], pad_after=[1,1]}"},
    {.text = "f32[2,6,5,4], f32[6,3,2,4] {stride=[2,2], pad_before=[0,1], pad_after=[1,0]}"},
    {.text = "f32[1,7,6,4], f32[4,3,2,2], f32[4] {dilation=[2,3], pad_before=[2,0], groups=2}"},
    {.text = "f32[2,5,4,6], f32[6,3,3,1], f32[6] "
             "{pad_before=[1,1], pad_after=[1,1], groups=6}"},
    {.text = "f32[1,6,5,5], f32[10,3,3,1] {stride=[2,1], pad_before=[1,1], groups=5}"},
    {.text = "f32[2,3,3,17], f32[19,1,1,17], f32[19]"},
    {.text = "f32[1,5,3,8], f32[3,1,1,8] {stride=[2,2]}"},
    {.text = "f32[2,13,3], f32[5,4,3], f32[5] {stride=[3], pad_before=[2], pad_after=[1]}"},
    {.text = "f32[1,3,4,5,2], f32[3,2,3,2,2] "
             "{stride=[1,2,1], pad_before=[0,1,1], pad_after=[1,1,0]}"},
    {.text = "f32[1,2,19,33], f32[70,1,3,33] {pad_before=[0,1], pad_after=[0,1]}"},
    {.text = "f32[2,4,21,2], f32[1,3,3,2], f32[1] {pad_before=[1,1], pad_after=[1,1]}"},
    {.text = "f32[1,5,18,3], f32[3,2,2,3] {dilation=[3,2], pad_before=[0,3], pad_after=[2,0]}"},
    {.text = "f32[1,2,2,3], f32[2,1,1,3] {pad_before=[1,2], pad_after=[2,1]}"},
};
static const char *const rejects[] = {
    "f32[2,3], f32[4,3]",
    "f32[2,3,3], f32[4,3,3,3]",
    "f32[1,5,5,3], f32[4,3,3,4]",
    "f32[1,5,5,4], f32[4,3,3,4] {groups=2}",
    "f32[1,5,5,4], f32[3,3,3,2] {groups=2}",
    "f32[1,5,5,3], f32[4,3,3,3], f32[3]",
    "f32[1,5,5,3], f64[4,3,3,3]",
    "f32[1,5,5,3], f32[4,6,3,3]",
    "f32[1,5,5,3], f32[4,3,3,3] {dilation=[3,1]}",
    "f32[1,5,5,3], f32[4,3,3,3] {stride=[0,1]}",
    "f32[1,5,5,3], f32[4,3,3,3] {stride=[1]}",
    "f32[1,5,5,3], f32[4,3,3,3] {pad_before=[-1,0]}",
    "f32[1,5,5,3], f32[4,3,3,3] {groups=0}",
    "f32[1,1,2,2,2,3], f32[4,1,1,1,1,3]",
    "i32[1,5,5,3]~3, f32[4,3,3,3]",
};

const struct op_def op_def_conv = {
    .name = "conv",
    .synopsis = "y[n, o, f] = bias[f] + sum over k, c of x[n, o stride - pad + k dilation, c] "
                "w[f, k, c], c of f's group",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = conv_flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
