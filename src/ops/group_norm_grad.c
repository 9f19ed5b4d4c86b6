#include "ops/channel_norm_support.h"

static const struct attr_def attrs[] = {
    [GROUP_NORM_GROUPS] = {"groups", ATTR_INT, {.i = 0}, true},
    [GROUP_NORM_GRAD_DTYPE] = {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false},
};

static enum status infer(const struct op_call *c)
{
    struct shape statistics;
    TRY(need_groups(c, &statistics));
    return infer_norm_grad(c, &statistics, GROUP_NORM_GRAD_DTYPE);
}

static double flops(const struct op_call *c)
{
    return 14.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0},
    {ALIAS_MAY, 0, 1},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,6], f32[3,6], f32[6], f32[3,2], f32[3,2]+ {groups=2}"},
    {.text = "f32[2,3,4,33], f32[2,3,4,33], f32[33], f32[2,11], f32[2,11]+ {groups=11}"},
    {.text = "f32[2,7,20], f32[2,7,20], _, f32[2,1], f32[2,1]+ {groups=1}"},
    {.text = "f32[1,300,6], f32[1,300,6], f32[6], f32[1,6], f32[1,6]+ {groups=6}"},
    {.text = "bf16[2,9,2,40], bf16[2,9,2,40], f32[40], f32[2,4], f32[2,4]+ {groups=4, dtype=f32}",
     .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,6], f32[3,5], f32[6], f32[3,2], f32[3,2] {groups=2}",
    "f32[3,6], f32[3,6], f32[3], f32[3,2], f32[3,2] {groups=2}",
    "f32[3,6], f32[3,6], f32[6], f32[3,3], f32[3,2] {groups=2}",
    "f32[3,6], f32[3,6], f32[6], f32[3,2], f64[3,2] {groups=2}",
    "f32[3,6], f32[3,6], f32[6] {groups=2}",
    "f32[3,6], f32[3,6], f32[6], f32[3,4], f32[3,4] {groups=4}",
};

const struct op_def op_def_group_norm_grad = {
    .name = "group_norm_grad",
    .synopsis = "h = (x - mean) rstd, g = dy gamma: dx = rstd (g - avg(g) - h avg(g h)) by group, "
                "dgamma = sum "
                "dy h, dbeta = sum dy by channel",
    .min_in = 2,
    .max_in = 5,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
