#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "value", .type = ATTR_FLOAT},
};

static enum status infer(const struct op_call *c)
{
    if (!call_has(c, 0))
        return REJECT(c, "x is absent");
    out_like(c, 0, 0);
    return OK;
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[1025] {value=1.5}"},
    {.text = "i32[7] {value=-2.0}"},
    {.text = "f32[]"},
};
static const char *const rejects[] = {
    "_",
};

const struct op_def op_def_fill = {
    .name = "fill",
    .synopsis = "x' = value, in place",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    .ignores_inputs = true,
    OP_NO_ACCUMULATE,
    .granule = 1,
    .recompute = RECOMPUTE_NEVER,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
