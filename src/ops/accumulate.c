#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_float(c, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,1030], bf16[2,1030]"},
    {.text = "f32[], f32[]"},
    {.text = "bf16[7], f32[7]"},
};
static const char *const rejects[] = {
    "f32[3], f32[4]",
    "f32[3], i32[3]",
    "i32[3], f32[3]",
};

const struct op_def op_def_accumulate = {
    .name = "accumulate",
    .synopsis = "acc' = acc + g, in place; the dtypes may differ",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .granule = 1,
    .recompute = RECOMPUTE_NEVER,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
