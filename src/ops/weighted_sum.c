/* weighted_sum.c: two tensors of one shape, each times a number of the graph. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {{.name = "a", .type = ATTR_FLOAT, .value = {.f = 1}},
                                        {.name = "b", .type = ATTR_FLOAT, .value = {.f = 1}}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 3.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5] {a=2.0, b=-0.5}"},
    {.text = "f32[1030], f32[1030]"},
    {.text = "bf16[37], bf16[37] {a=3.4445, b=1.0}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4]",
    "f32[3], bf16[3]",
    "i32[3], i32[3]",
};

const struct op_def op_def_weighted_sum = {
    .name = "weighted_sum",
    .synopsis = "y = a x1 + b x2",
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
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
