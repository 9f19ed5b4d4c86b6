#include "ops/layer_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 3));
    TRY(need_min_rank(c, 0, 1));
    TRY(need_rank(c, 1, 2));
    const struct shape *x = &c->in[0].shape, *w = &c->in[1].shape;
    if (shape_last(x) != w->dim[1])
        return REJECT(c, "x has last axis %lld, w has %lld columns", (long long)shape_last(x),
                      (long long)w->dim[1]);
    struct shape bias = shape_of(1, w->dim[0]);
    if (call_has(c, 2))
        TRY(need_shape(c, 2, &bias));
    struct shape y = shape_with_last(*x, w->dim[0]);
    if (call_has(c, 3))
        TRY(need_shape(c, 3, &y));
    out_set(c, 0, c->in[0].dtype, y);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], bias = node_input(n, 2), residual = node_input(n, 3);
    if (wants[0])
        d_in[0] = build(b, OP_linear_grad_input, IN(dy, n->in[1]), NO_ATTRS);
    if (wants[1])
        d_in[1] = build(b, OP_linear_grad_weight, IN(dy, n->in[0]), NO_ATTRS);
    if (bias != VALUE_NONE && wants[2])
        d_in[2] = sum_to_shape_of(b, dy, bias);
    if (residual != VALUE_NONE && wants[3])
        d_in[3] = dy;
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[0];
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[4,5]"},
    {.text = "f32[2,3,17], f32[9,17], f32[9]"},
    {.text = "f32[7], f32[3,7], f32[3]"},
    {.text = "f32[33,40], f32[37,40], f32[37]"},
    {.text = "f32[1,1], f32[1,1]"},
    {.text = "f32[3,5], f32[4,5], _, f32[3,4]"},
    {.text = "f32[2,3,17], f32[9,17], f32[9], f32[2,3,9]"},
    {.text = "f32[33,40], f32[37,40], f32[37], f32[33,37]"},
    {.text = "f32[16,24], f32[56,24], _, f32[16,56]"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[4,6]",
    "f32[3,5], f32[5]",
    "f32[3,5], f32[4,5], f32[5]",
    "f32[3,5], f64[4,5]",
    "i32[3,5]~4, f32[4,5]",
    "f32[3,5], f32[4,5], _, f32[4]",
    "f32[3,5], f32[4,5], f32[4], f32[3,5]",
    "f32[3,5], f32[4,5], f32[4], f64[3,4]",
};

const struct op_def op_def_linear = {
    .name = "linear",
    .synopsis = "y[..., n] = sum_k x[..., k] w[n, k] + bias[n] + residual[..., n]",
    .min_in = 2,
    .max_in = 4,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    /* y never lies over the residual: libraries round differently when it does, and a plan must not
     * show in the result. A residual is saved for a norm's gradient anyway. */
    .aliases = NULL,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
