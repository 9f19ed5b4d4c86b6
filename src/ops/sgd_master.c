/* sgd_master.c: sgd on a full-precision copy of the parameter, its sixth input. The parameter is
 * always the master rounded to nearest. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {SGD_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_sgd(c));
    TRY(need_master_or_rest(c, 5));
    out_like(c, 0, 0);
    out_like(c, 1, 5);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 5}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "bf16[3,5], bf16[3,5], f32[1]=0.1, i32[1]=1, f32[1]+, f32[3,5]"},
    {.text = "bf16[1030], f32[1030], f32[1]=0.1, i32[1]=2, f32[1]+, f32[1030] {weight_decay=0.1}"},
    {.text = "f16[300], f32[300], f32[1]=0.1, i32[1]=2, f32[1]=0.5, f32[300]"},
    {.text = "bf16[5], f32[5], f32[1]=0.1, i32[1]=2, f32[1]=0, f32[5]"},
    {.text = "bf16[300]+, bf16[300], f32[1]=0.01, i32[1]=5, f32[1]=0.5, u8[300]~256 {seed=6}"},
};
static const char *const rejects[] = {
    "bf16[3], f32[4], f32[1], i32[1], f32[1], f32[3]",
    "bf16[3], f32[3], f32[1], i32[1], f32[1], f32[4]",
    "bf16[3], f32[3], f32[1], i32[1], f32[1], bf16[3]",
    "bf16[3], f32[3], f32[1], i32[1], f32[1], f32[3] {weight_decay=-1.0}",
};

const struct op_def op_def_sgd_master = {
    .name = "sgd_master",
    .synopsis = "sgd on master; param' = master' in param's dtype",
    .min_in = 6,
    .max_in = 6,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 1, /* in bytes */
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_SLICES(2),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
