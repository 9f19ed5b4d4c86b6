#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    {"chunks", ATTR_INT, {.i = 0}, false},
    {"ignore_index", ATTR_INT, {.i = -100}, false},
    {"label_smoothing", ATTR_FLOAT, {.f = 0.0}, false},
    {"z_loss", ATTR_FLOAT, {.f = 0.0}, false},
    {"softcap", ATTR_FLOAT, {.f = 0.0}, false},
};

/* A weight that is not trained needs no gradient: the op without it is a third shorter.
 * The count of valid rows does not depend on x or w: a gradient that arrives there adds nothing. */
static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (d_out[0] == VALUE_NONE)
        return OK;
    enum op_id op = wants[1] ? OP_linear_cross_entropy_grad : OP_linear_cross_entropy_grad_input;
    build(b, op, IN(n->in[0], n->in[1], n->in[2], d_out[0]),
          ATTRS({"chunks", .i = n->attrs[HEAD_LOSS_CHUNKS].i},
                {"ignore_index", .i = n->attrs[HEAD_LOSS_IGNORE].i},
                {"label_smoothing", .f = n->attrs[HEAD_LOSS_SMOOTHING].f},
                {"z_loss", .f = n->attrs[HEAD_LOSS_Z].f},
                {"softcap", .f = n->attrs[HEAD_LOSS_CAP].f}));
    if (wants[0])
        d_in[0] = build_output(b, 2);
    if (wants[1])
        d_in[1] = build_output(b, 3);
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return c->in[1].shape.dim[0];
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[0];
}

static const struct op_sample samples[] = {
    {.text = "f32[5,4], f32[7,4], i32[5]~7"},
    {.text = "f32[2,3,17], f32[33,17], i32[2,3]~33 {chunks=4}"},
    {.text = "f32[9,5], f32[11,5], i32[9]~-1:11 {ignore_index=-1, label_smoothing=0.1}"},
    {.text = "f32[9,5], f32[40,5], i32[9]~40 {z_loss=0.01, chunks=2}"},
    {.text = "f32[9,5], f32[40,5], i32[9]~40 {softcap=6.0, chunks=2}"},
    {.text = "f32[5,4], f32[1050,4], i32[5]~-1:11 "
             "{ignore_index=-1, label_smoothing=0.1, z_loss=0.01, softcap=4.0}"},
};
static const char *const rejects[] = {"f32[5,4], f32[7,3], i32[5]~7",
                                      "f32[5,4], f32[7,4], i32[4]~7",
                                      "f32[5,4], f32[7,4], f32[5]",
                                      "f32[5,4], f64[7,4], i32[5]~7",
                                      "f32[5,4], f32[7,4], i32[5]~7 {chunks=-1}",
                                      "f32[5,4], f32[7,4], i32[5]~7 {label_smoothing=1}",
                                      "f32[5,4], f32[7,4], i32[5]~7 {z_loss=-0.5}",
                                      "f32[5,4], f32[7,4], i32[5]~7 {softcap=-1.0}"};

const struct op_def op_def_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .synopsis = "z = x w^T, softcap tanh(z / softcap) where that is not 0; rows with target t: "
                "loss_sum = sum of lse(z) - (1-e) z[t] - e avg(z) + "
                "z_loss lse(z)^2, e = label_smoothing; count = rows whose t is not ignore_index",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer_head_loss,
    .grad = grad,
    .no_grad_inputs = 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = index_limit,
    .workspace_is_logits = true,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
