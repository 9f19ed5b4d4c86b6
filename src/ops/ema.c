/* ema.c: an average of a parameter over the steps, in which each step counts `decay` times as much
 * as the one after it. Inputs: avg, param. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {
    {.name = "decay", .type = ATTR_FLOAT, .value = {.f = 0.999}}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_float(c, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    if (c->in[0].dtype != dtype_accumulator(c->in[0].dtype))
        return REJECT(c, "avg must be f32 or f64, not %s", dtype_name(c->in[0].dtype));
    if (!(call_float(c, 0) >= 0.0 && call_float(c, 0) < 1.0))
        return REJECT(c, "decay is %g; it must be in [0, 1)", call_float(c, 0));
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 3.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[1030], bf16[1030] {decay=0.5}"},
    {.text = "f32[2,70], f16[2,70] {decay=0.0}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4]",
    "bf16[3], bf16[3]",
    "f32[3], f32[3] {decay=1.0}",
    "f32[3], i32[3]",
};

const struct op_def op_def_ema = {
    .name = "ema",
    .synopsis = "avg' = decay avg + (1 - decay) param",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .granule = 1,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
