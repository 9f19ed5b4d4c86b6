/* adamw_8bit_master.c: adamw_8bit on a full-precision copy of the parameter, its tenth input. The
 * parameter is always the master rounded to nearest. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {ADAMW_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_adamw_coded(c));
    TRY(need_master_or_rest(c, CODED_MASTER));
    out_adamw_coded(c);
    out_like(c, 5, CODED_MASTER);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 24.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_UPDATE, 2, 3}, {ALIAS_UPDATE, 3, 4},
    {ALIAS_UPDATE, 4, 5}, {ALIAS_UPDATE, 5, 9}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "bf16[3,5], bf16[3,5], u8[3,5]~256, f32[1]+, u8[3,5]~256, f32[1]+, f32[1]=0.01, "
             "i32[1]=3, f32[1]+, f32[3,5]"},
    {.text = "bf16[1030], f32[1030], u8[1030]~256, f32[5]+, u8[1030]~256, f32[5]+, f32[1]=0.01, "
             "i32[1]=1, f32[1]+, f32[1030] {beta1=0.8, beta2=0.95, epsilon=0.001, "
             "weight_decay=0.1}"},
    {.text = "f16[300], f32[300], u8[300]~256, f32[2]+, u8[300]~256, f32[2]+, f32[1]=0.01, "
             "i32[1]=5, f32[1]=0.5, f32[300]"},
    {.text = "f32[256], f32[256], u8[256]~256, f32[1]+, u8[256]~256, f32[1]+, f32[1]=0.01, "
             "i32[1]=9, f32[1]+, f32[256]"},
    {.text = "bf16[5], f32[5], u8[5]~256, f32[1]+, u8[5]~256, f32[1]+, f32[1]=0.01, i32[1]=2, "
             "f32[1]=0, f32[5]"},
    {.text = "bf16[300]+, f32[300], u8[300]~256, f32[2]+, u8[300]~256, f32[2]+, f32[1]=0.01, "
             "i32[1]=5, f32[1]=0.5, u8[300]~256 {seed=6}"},
    {.text = "bf16[300]+, f32[300], u8[300]~256, f32[2]+, u8[300]~256, f32[2]+, f32[1]=0.01, "
             "i32[1]=5, f32[1]=0.5, u8[300]~256"},
};
static const char *const rejects[] = {
    "bf16[3], f32[4], u8[3], f32[1], u8[3], f32[1], f32[1], i32[1], f32[1], f32[3]",
    "bf16[3], f32[3], u8[3], f32[1], u8[3], f32[1], f32[1], i32[1], f32[1], f32[4]",
    "bf16[3], f32[3], u8[3], f32[1], u8[3], f32[1], f32[1], i32[1], f32[1], bf16[3]",
    "bf16[3], f32[3], u8[3], f32[1], u8[3], f32[2], f32[1], i32[1], f32[1], f32[3]",
    "bf16[3], f32[3], u8[3], f32[1], u8[3], f32[1], f32[1], i32[1], f32[1], u8[4]",
    "f32[3], f32[3], u8[3], f32[1], u8[3], f32[1], f32[1], i32[1], f32[1], u8[3]",
};

const struct op_def op_def_adamw_8bit_master = {
    .name = "adamw_8bit_master",
    .synopsis = "adamw_8bit on master; param' = master' in param's dtype",
    .min_in = 10,
    .max_in = 10,
    .n_out = 6,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 1 | 1u << 3 | 1u << 5,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_CODED_SLICES(CODED_LR),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
