#include "ops/op_support.h"

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    /* y > 0 exactly where x > 0, so the output serves and x need not be kept. */
    if (wants[0])
        d_in[0] = build(b, OP_relu_grad, IN(d_out[0], n->out[0]), NO_ATTRS);
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,3,17]"},
    {.text = "f32[1025]"},
    {.text = "f32[]"},
};
static const char *const rejects[] = {
    "i32[3]",
};

const struct op_def op_def_relu = {
    .name = "relu",
    .synopsis = "y = max(x, 0)",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_unary,
    .grad = grad,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
