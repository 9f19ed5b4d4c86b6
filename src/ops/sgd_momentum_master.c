/* sgd_momentum_master.c: sgd_momentum on a full-precision copy of the parameter, its seventh input.
 * The parameter is always the master rounded to nearest. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {SGD_MOMENTUM_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_sgd_momentum(c));
    TRY(need_master_or_rest(c, 6));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    out_like(c, 2, 6);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 6.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_UPDATE, 2, 6}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "bf16[3,5], bf16[3,5], f32[3,5], f32[1]=0.1, i32[1]=1, f32[1]+, f32[3,5]"},
    {.text = "bf16[1030], f32[1030], f32[1030], f32[1]=0.1, i32[1]=5, f32[1]+, f32[1030] "
             "{momentum=0.5, weight_decay=0.1, nesterov=true}"},
    {.text = "f16[300], f32[300], f32[300], f32[1]=0.1, i32[1]=2, f32[1]=0.5, f32[300]"},
    {.text = "bf16[5], f32[5], f32[5], f32[1]=0.1, i32[1]=1, f32[1]=0, f32[5]"},
    {.text = "bf16[2057], bf16[2057], bf16[2057], f32[1]=0.1, i32[1]=2, f32[1]=0.5, f32[2057] "
             "{seed=5}"},
    {.text = "bf16[300]+, bf16[300], f32[300], f32[1]=0.01, i32[1]=5, f32[1]=0.5, u8[300]~256"},
};
static const char *const rejects[] = {
    "bf16[3], f32[4], f32[3], f32[1], i32[1], f32[1], f32[3]",
    "bf16[3], f32[3], f32[2], f32[1], i32[1], f32[1], f32[3]",
    "bf16[3], f32[3], f32[3], f32[1], i32[1], f32[1], f32[4]",
    "bf16[3], f32[3], f32[3], f32[1], i32[1], f32[1], bf16[3]",
    "bf16[3], f32[3], f32[3], f32[1], i32[1], f32[1], f32[3] {momentum=-0.5}",
};

const struct op_def op_def_sgd_momentum_master = {
    .name = "sgd_momentum_master",
    .synopsis = "sgd_momentum on master; param' = master' in param's dtype",
    .min_in = 7,
    .max_in = 7,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 2, /* in bytes */
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_SLICES(3),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
