#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    {"chunks", ATTR_INT, {.i = 0}, false},
    {"ignore_index", ATTR_INT, {.i = -100}, false},
    {"label_smoothing", ATTR_FLOAT, {.f = 0.0}, false},
    {"z_loss", ATTR_FLOAT, {.f = 0.0}, false},
    {"softcap", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    struct shape one = shape_of(1, (int64_t)1);
    TRY(infer_head_loss(c));
    TRY(need_statistics(c, 3, 0, &one));
    out_like(c, 2, 0);
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    return c->in[1].shape.dim[0];
}

/* The logits once, then their gradient into x. */
static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[0];
}

/* dx over x: a chunk's rows of x are read for the logits before its rows of dx are written. */
static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 2, 0},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[5,4], f32[7,4], i32[5]~7, f32[1]"},
    {.text = "f32[2,3,17], f32[33,17], i32[2,3]~33, f32[1] {chunks=4}"},
    {.text = "f32[9,5], f32[11,5], i32[9]~-1:11, f32[1] {ignore_index=-1, label_smoothing=0.1}"},
    {.text = "bf16[9,8], bf16[40,8], i32[9]~40, f32[1] {chunks=2, softcap=2.0}", .tolerance = 1e-2},
    {.text = "f32[5,4], f32[1050,4], i32[5]~-1:11, f32[1] "
             "{ignore_index=-1, label_smoothing=0.1, z_loss=0.01, softcap=4.0}"},
};
static const char *const rejects[] = {
    "f32[5,4], f32[7,3], i32[5]~7, f32[1]", "f32[5,4], f32[7,4], i32[4]~7, f32[1]",
    "f32[5,4], f32[7,4], i32[5]~7, f32[2]",
    "f32[5,4], f32[7,4], i32[5]~7, f32[1] {label_smoothing=-0.1}"};

extern const struct op_def op_def_linear_cross_entropy;

const struct op_def op_def_linear_cross_entropy_grad_input = {
    .name = "linear_cross_entropy_grad_input",
    .synopsis = "linear_cross_entropy_grad without dw, for a w that is not trained",
    .min_in = 4,
    .max_in = 4,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .gives_outputs_of = &op_def_linear_cross_entropy,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = index_limit,
    .workspace_is_logits = true,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
