#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    if (!shape_is_suffix(&c->in[1].shape, &c->in[0].shape))
        return REJECT(c, "b must have a's shape or be a suffix of it");
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = d_out[0];
    if (wants[1])
        d_in[1] = sum_to_shape_of(b, d_out[0], n->in[1]);
    return builder_status(b);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,4], f32[3,4]"},
    {.text = "f32[2,17], f32[17]"},
};
static const char *const rejects[] = {"f32[3,5], f32[3]", "f32[3], i32[3]", "f32[3], f32[2,3]"};

const struct op_def op_def_add = {
    .name = "add",
    .synopsis = "y = a + b; b may broadcast over a's leading axes",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
