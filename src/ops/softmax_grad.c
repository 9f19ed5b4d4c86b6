#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    if (c->in[0].shape.rank < 1)
        return REJECT(c, "a scalar has no last axis");
    TRY(need_shape(c, 1, &c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5]"},
    {.text = "f32[2,3,17], f32[2,3,17]"},
    {.text = "f32[2,1030], f32[2,1030]"},
    {.text = "f32[4,1], f32[4,1]"},
};
static const char *const rejects[] = {
    "f32[], f32[]",
    "f32[3], f32[4]",
    "f32[3], f64[3]",
};

const struct op_def op_def_softmax_grad = {
    .name = "softmax_grad",
    .synopsis = "dx[i] = y[i] (dy[i] - sum over j of dy[j] y[j]), along the last axis",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
