#include "ops/channel_norm_support.h"

static const struct attr_def attrs[] = {
    [GROUP_NORM_GROUPS] = {"groups", ATTR_INT, {.i = 0}, true},
    [GROUP_NORM_EPSILON] = {"epsilon", ATTR_FLOAT, {.f = 1e-5}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_channel_norm(c));
    struct shape statistics;
    TRY(need_groups(c, &statistics));
    if (!(call_float(c, GROUP_NORM_EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    enum dtype accumulator = dtype_accumulator(c->in[0].dtype);
    out_like(c, 0, 0);
    out_set(c, 1, accumulator, statistics);
    out_set(c, 2, accumulator, statistics);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    return build_norm_grad(b, OP_group_norm_grad, n, d_out, wants, d_in);
}

static double flops(const struct op_call *c)
{
    return 8.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,6], f32[6], f32[6] {groups=2}"},
    {.text = "f32[2,3,4,33], f32[33], f32[33] {groups=11, epsilon=0.001}"},
    {.text = "f32[2,7,20], f32[20], _ {groups=1}"},
    {.text = "f32[2,5,8], _, f32[8] {groups=8}"},
    {.text = "f32[1,300,6] {groups=3}"},
    {.text = "bf16[2,9,2,40], f32[40], f32[40] {groups=4}", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,6], f32[5], f32[6] {groups=2}",  "f32[3,6], f32[6], f32[6] {groups=4}",
    "f32[3,6], f32[6], f32[6] {groups=0}",  "f32[3,6], f32[6], f32[6]",
    "f32[3,6], bf16[6], f32[6] {groups=2}", "i32[3,6]~3 {groups=2}",
    "f32[3,6] {groups=2, epsilon=-1}",      "f32[6] {groups=2}",
};

const struct op_def op_def_group_norm = {
    .name = "group_norm",
    .synopsis = "y = (x - mean) rstd gamma + beta, statistics over a sample's channels of a group "
                "and all its "
                "places; gamma, beta by channel",
    .min_in = 1,
    .max_in = 3,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .f32_inputs = 1u << 1 | 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
