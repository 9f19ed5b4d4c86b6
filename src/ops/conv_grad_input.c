/* conv_grad_input.c: the gradient of a convolution's input; used forward, a transposed convolution,
 * whose own gradients are a convolution and a gradient of weights. */
#include "ops/window_support.h"

static const struct attr_def attrs[] = {
    CONV_ATTRS,
    {.name = "size", .type = ATTR_INTS, .required = true},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 2));
    TRY(need_spatial(c, 0));
    int rank = c->in[0].shape.rank - 2;
    TRY(need_conv(c, rank));
    struct conv_dims d = conv_dims_of(c);
    struct shape dy = spatial_shape(&d.window, d.window.out, d.features);
    TRY(need_shape(c, 0, &dy));
    struct shape dx = spatial_shape(&d.window, d.window.size, d.channels);
    TRY(need_accumulator(c, 2, c->in[0].dtype, &dx));
    out_set(c, 0, c->in[0].dtype, dx);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id d = d_out[0];
    if (wants[0])
        d_in[0] = build_with(b, OP_conv, IN(d, n->in[1]), n->attrs);
    if (wants[1])
        d_in[1] = build_conv_grad_weight(b, d, n->in[0], n->attrs, build_shape(b, n->in[1]));
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 2}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[1,7,5,4], f32[4,3,3,3] "
             "{pad_before=[1,1], pad_after=[1,1], size=[7,5]}"},
    {.text = "f32[2,3,4,6], f32[6,3,2,4], f32[2,6,6,4] "
             "{stride=[2,2], pad_before=[0,1], pad_after=[1,1], size=[6,6]}"},
    {.text = "f32[1,3,2,6], f32[6,4,4,5] "
             "{stride=[2,2], pad_before=[1,1], pad_after=[1,1], size=[6,4]}"},
    {.text = "f32[1,5,3,4], f32[4,3,2,2] "
             "{dilation=[2,3], pad_before=[2,0], groups=2, size=[7,6]}"},
    {.text = "f32[1,3,2,4], f32[4,3,2,3], f32[1,8,5,3] "
             "{stride=[2,3], dilation=[2,1], pad_before=[1,0], size=[8,5]}"},
    {.text = "f32[2,5,4,6], f32[6,3,3,1] "
             "{pad_before=[1,1], pad_after=[1,1], groups=6, size=[5,4]}"},
    {.text = "f32[2,3,3,19], f32[19,1,1,17], f32[2,3,3,17] {size=[3,3]}"},
    {.text = "f32[1,3,2,3], f32[3,1,1,8] {stride=[2,2], size=[5,3]}"},
    {.text = "f32[2,5,5], f32[5,4,3] {stride=[3], pad_before=[2], pad_after=[1], size=[13]}"},
    {.text = "f32[1,3,2,5,3], f32[3,2,3,2,2] "
             "{stride=[1,2,1], pad_before=[0,1,1], pad_after=[1,1,0], size=[3,4,5]}"},
    {.text = "f32[2,4,19,5], f32[5,3,3,1], f32[2,4,19,1] "
             "{pad_before=[1,1], pad_after=[1,1], size=[4,19]}"},
    {.text = "f32[1,3,9,4], f32[4,3,4,3] "
             "{stride=[2,2], dilation=[1,2], pad_before=[1,2], size=[6,21]}"},
    {.text = "f32[1,2,19,20], f32[20,1,3,70] {pad_before=[0,1], pad_after=[0,1], size=[2,19]}"},
};
static const char *const rejects[] = {
    "f32[1,7,5,4], f32[4,3,3,3] {pad_before=[1,1], pad_after=[1,1]}",
    "f32[1,7,5,4], f32[4,3,3,3] {pad_before=[1,1], pad_after=[1,1], size=[7]}",
    "f32[1,7,5,4], f32[4,3,3,3] {pad_before=[1,1], pad_after=[1,1], size=[7,6]}",
    "f32[1,7,5,4], f32[5,3,3,3] {pad_before=[1,1], pad_after=[1,1], size=[7,5]}",
    "f32[1,7,5,4], f32[4,3,3,3], f32[1,7,5,4] {pad_before=[1,1], pad_after=[1,1], size=[7,5]}",
    "f32[1,7,5,4], f64[4,3,3,3] {pad_before=[1,1], pad_after=[1,1], size=[7,5]}",
    "f32[1,7,5,4], f32[4,3,3,3] {pad_before=[1,1], pad_after=[1,1], size=[7,5], groups=3}",
};

const struct op_def op_def_conv_grad_input = {
    .name = "conv_grad_input",
    .synopsis =
        "dx[n, i, c] = acc[n, i, c] + sum of dy[n, o, f] w[f, k, c] over f of c's group and "
        "o, k with o stride - pad + k dilation = i",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 2,
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
