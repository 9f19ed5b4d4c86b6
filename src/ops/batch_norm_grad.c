#include "ops/channel_norm_support.h"

enum { DTYPE };

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false}};

static enum status infer(const struct op_call *c)
{
    struct shape statistics = shape_of(1, shape_last(&c->in[0].shape));
    return infer_norm_grad(c, &statistics, DTYPE);
}

static double flops(const struct op_call *c)
{
    return 14.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0},
    {ALIAS_MAY, 0, 1},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[5], f32[5], f32[5]+"},
    {.text = "f32[2,3,4,33], f32[2,3,4,33], f32[33], f32[33], f32[33]+"},
    {.text = "f32[4,7,17], f32[4,7,17], _, f32[17], f32[17]+"},
    {.text = "f32[300,6], f32[300,6], f32[6], f32[6], f32[6]+"},
    {.text = "bf16[9,2,40], bf16[9,2,40], f32[40], f32[40], f32[40]+ {dtype=f32}",
     .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,4], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[3], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[3], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], f64[5]",
    "f32[3,5], f32[3,5], f32[5]",
    "f32[5], f32[5], f32[5], f32[5], f32[5]",
};

const struct op_def op_def_batch_norm_grad = {
    .name = "batch_norm_grad",
    .synopsis = "h = (x - mean) rstd: dbeta = sum dy, dgamma = sum dy h, dx = gamma rstd (dy - "
                "(dbeta + h dgamma) / count), "
                "by channel",
    .min_in = 2,
    .max_in = 5,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
