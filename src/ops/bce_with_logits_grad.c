#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 2));
    TRY(need_shape(c, 1, &c->in[0].shape));
    TRY(need_shape(c, 2, &c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_MAY, 0, 2}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[3,5]"},
    {.text = "f32[1025], f32[1025], f32[1025]"},
};
static const char *const rejects[] = {"f32[3], f32[3], f32[2]", "f32[3], f32[3], f64[3]"};

const struct op_def op_def_bce_with_logits_grad = {
    .name = "bce_with_logits_grad",
    .synopsis = "dx = dy (sigmoid(x) - t)",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
