#include "ops/channel_norm_support.h"

static const struct attr_def attrs[] = {
    [RUNNING_MOMENTUM] = {"momentum", ATTR_FLOAT, {.f = 0.1}, false},
    [RUNNING_EPSILON] = {"epsilon", ATTR_FLOAT, {.f = 1e-5}, false},
    [RUNNING_COUNT] = {"count", ATTR_INT, {.i = 0}, false},
    [RUNNING_OF_VARIANCE] = {"of_variance", ATTR_BOOL, {.i = 0}, false},
};

static enum status infer(const struct op_call *c)
{
    double momentum = call_float(c, RUNNING_MOMENTUM);
    TRY(need_same_float(c, 0, 1));
    TRY(need_dtype(c, 0, dtype_accumulator(c->in[0].dtype)));
    TRY(need_rank(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    if (!(momentum >= 0.0 && momentum <= 1.0))
        return REJECT(c, "momentum is %g; it must be in [0, 1]", momentum);
    if (!(call_float(c, RUNNING_EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    if (call_bool(c, RUNNING_OF_VARIANCE) && call_int(c, RUNNING_COUNT) < 1)
        return REJECT(c, "a variance needs the count of elements it is of");
    out_like(c, 0, 0);
    return OK;
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[5], f32[5] {momentum=0.1}"},
    {.text = "f32[33]+, f32[33]+ {momentum=0.01, count=24, of_variance=true}"},
    {.text = "f32[7]+, f32[7]+ {count=1, of_variance=true, epsilon=0.001}"},
};
static const char *const rejects[] = {
    "f32[5], f32[4]",
    "bf16[5], bf16[5]",
    "f32[5], f64[5]",
    "f32[5], f32[5] {momentum=1.5}",
    "f32[5], f32[5] {of_variance=true}",
    "f32[5,1], f32[5,1]",
    "f32[5], f32[5] {epsilon=-1}",
};

const struct op_def op_def_running_average = {
    .name = "running_average",
    .synopsis = "r = (1 - momentum) r + momentum s, s: the mean, or the unbiased variance that "
                "rstd stands for",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
