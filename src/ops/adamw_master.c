/* adamw_master.c: AdamW on a full-precision copy of the parameter. Inputs: param, grad, m, v, lr,
 * step (counts from 1), scale, master. The rule, and what scale = 0 and seed mean, are adamw's; the
 * parameter is always the master rounded to nearest. A master in bytes is what a bf16 parameter
 * lacks of 24 bits; those are rounded by chance where there is a seed. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {ADAMW_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_adamw(c));
    TRY(need_master_or_rest(c, 7));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    out_like(c, 2, 3);
    out_like(c, 3, 7);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 16.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0},
                                            {ALIAS_UPDATE, 1, 2},
                                            {ALIAS_UPDATE, 2, 3},
                                            {ALIAS_UPDATE, 3, 7},
                                            {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "bf16[3,5], bf16[3,5], f32[3,5], f32[3,5]+, f32[1]=0.01, i32[1]=3, f32[1]+, f32[3,5]"},
    {.text = "bf16[1030], f32[1030], bf16[1030], bf16[1030]+, f32[1]=0.01, i32[1]=1, f32[1]+, "
             "f32[1030] {beta1=0.8, beta2=0.95, epsilon=0.001, weight_decay=0.1}"},
    {.text = "f32[37], f32[37], f32[37], f32[37]+, f32[1]=0.01, i32[1]=9, f32[1]+, f32[37]"},
    {.text = "bf16[5], f32[5], f32[5], f32[5]+, f32[1]=0.01, i32[1]=2, f32[1]=0, f32[5]"},
    {.text = "f16[1030], f32[1030], f32[1030], f32[1030]+, f32[1]=0.01, i32[1]=5, f32[1]=0.5, "
             "f32[1030]"},
    {.text = "bf16[2057], bf16[2057], bf16[2057], bf16[2057]+, f32[1]=0.01, i32[1]=5, f32[1]=0.5, "
             "f32[2057] {seed=9}"},
    {.text = "bf16[300]+, bf16[300], f32[300], f32[300]+, f32[1]=0.01, i32[1]=5, f32[1]=0.5, "
             "u8[300]~256 {seed=6}"},
    {.text = "bf16[300]+, bf16[300], f32[300], f32[300]+, f32[1]=0.01, i32[1]=5, f32[1]=0.5, "
             "u8[300]~256"},
};
static const char *const rejects[] = {
    "bf16[3], f32[4], f32[3], f32[3], f32[1], i32[1], f32[1], f32[3]",
    "bf16[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1], f32[4]",
    "bf16[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1], _",
    "bf16[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1], bf16[3]",
    "bf16[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1], f32[3] {beta2=1.5}",
    "bf16[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1], u8[4]",
    "f16[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1], u8[3]",
};

const struct op_def op_def_adamw_master = {
    .name = "adamw_master",
    .synopsis = "adamw on master; param' = master' in param's dtype",
    .min_in = 8,
    .max_in = 8,
    .n_out = 4,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 3, /* in bytes */
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_SLICES(4),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
