#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    if (c->in[0].shape.rank < 1)
        return REJECT(c, "a scalar has no last axis");
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 5.0 * (double)shape_elems(&c->in[0].shape);
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_softmax_grad, IN(d_out[0], n->out[0]), NO_ATTRS);
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"}, {.text = "f32[2,3,17]"}, {.text = "f32[2,1030]"},
    {.text = "f32[4,1]"}, {.text = "f32[7]"},
};
static const char *const rejects[] = {
    "f32[]",
    "i32[3]",
};

const struct op_def op_def_softmax = {
    .name = "softmax",
    .synopsis = "y[i] = e^(x[i] - max x) / sum over j of e^(x[j] - max x), along the last axis",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
