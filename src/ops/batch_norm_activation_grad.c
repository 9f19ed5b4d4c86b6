#include "ops/channel_norm_support.h"

static const struct attr_def attrs[] = {
    [ACTIVATED_GRAD_SLOPE] = {"slope", ATTR_FLOAT, {.f = 0.0}, false},
    [ACTIVATED_GRAD_DTYPE] = {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false},
    [ACTIVATED_GRAD_SILU] = {"silu", ATTR_BOOL, {.i = 0}, false},
};

static enum status infer(const struct op_call *c)
{
    if (call_bool(c, ACTIVATED_GRAD_SILU) && call_float(c, ACTIVATED_GRAD_SLOPE) != 0.0)
        return REJECT(c, "silu has no slope");
    return infer_activated_grad(c);
}

static double flops(const struct op_call *c)
{
    return 22.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, ACTIVATED_GRAD_DY},
    {ALIAS_MAY, 0, ACTIVATED_GRAD_X},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f32[5]+"},
    {.text = "f32[2,3,4,64], f32[2,3,4,64], f32[64], f32[64], f32[64], f32[64]+ {slope=0.01}"},
    {.text = "f32[4,7,17], f32[4,7,17], _, f32[17], f32[17], f32[17]+ {silu=true}"},
    {.text = "f32[300,6], f32[300,6], f32[6], _, f32[6], f32[6]+ {slope=0.2}"},
    {.text = "f32[90,32], f32[90,32], f32[32], f32[32], f32[32], f32[32]+ {silu=true}"},
    {.text = "bf16[9,2,40], bf16[9,2,40], f32[40], f32[40], f32[40], f32[40]+ {dtype=f32}",
     .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[0,5], f32[0,5], f32[5], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[3,4], f32[5], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[3], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[4], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], f32[3], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f64[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f32[5] {slope=1, silu=true}",
};

const struct op_def op_def_batch_norm_activation_grad = {
    .name = "batch_norm_activation_grad",
    .synopsis = "h = (x - mean) rstd, dz = dy f'(gamma h + beta): dbeta = sum dz, dgamma = sum dz "
                "h, dx = gamma rstd (dz - (dbeta + h dgamma) / count), by channel",
    .min_in = 2,
    .max_in = 6,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << ACTIVATED_GRAD_GAMMA | 1u << ACTIVATED_GRAD_BETA,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
