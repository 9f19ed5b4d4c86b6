/* adafactor_master.c: adafactor on a full-precision copy of the parameter, its seventh input. The
 * parameter is always the master rounded to nearest. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {ADAFACTOR_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_adafactor(c));
    TRY(need_master(c, ADAFACTOR_MASTER));
    out_like(c, 0, 0);
    out_like(c, 1, ADAFACTOR_V);
    out_like(c, 2, ADAFACTOR_MASTER);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 14.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_UPDATE, 2, 6}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "bf16[3,5], bf16[3,5], f32[1,8]+, f32[1]=0.01, i32[1]=3, f32[1]+, f32[3,5]"},
    {.text = "f16[33,70], f32[33,70], f32[1,103]+, f32[1]=0.01, i32[1]=1, f32[1]+, f32[33,70] "
             "{scale_parameter=true, weight_decay=0.1}"},
    {.text = "bf16[1030], f32[1030], f32[1030]+, f32[1]=0.01, i32[1]=5, f32[1]+, f32[1030] "
             "{relative_step=true, seed=4}"},
    {.text = "bf16[4,3], f32[4,3], f32[1,7]+, f32[1]=0.01, i32[1]=2, f32[1]=0, f32[4,3]"},
    {.text = "bf16[13,67], f32[13,67], f32[1,214]+, f32[1]=0.01, i32[1]=3, f32[1]+, f32[13,67] "
             "{rows=[5, 1, 7], weight_decay=0.1, scale_parameter=true, clip_threshold=0.3}"},
    {.text = "bf16[2,9,6], bf16[2,9,6], f32[2,21]+, f32[1]=0.01, i32[1]=3, f32[1]+, f32[2,9,6] "
             "{experts=2, rows=[4, 5], scale_parameter=true}"},
    {.text = "f16[5,3,3,11], f32[5,3,3,11], f32[5,66]+, f32[1]=0.01, i32[1]=3, f32[1]+, "
             "f32[5,3,3,11] {channels_last=true}"},
};
static const char *const rejects[] = {
    "bf16[3,5], f32[3,4], f32[1,8], f32[1], i32[1], f32[1], f32[3,5]",
    "bf16[3,5], f32[3,5], f32[1,8], f32[1], i32[1], f32[1], bf16[3,5]",
    "bf16[3,5], f32[3,5], f32[1,8], f32[1], i32[1], f32[1], f32[5,3]",
    "bf16[3,5], f32[3,5], f32[1,13], f32[1], i32[1], f32[1], f32[3,5] {rows=[2, 2]}",
};

const struct op_def op_def_adafactor_master = {
    .name = "adafactor_master",
    .synopsis = "adafactor on master; param' = master' in param's dtype",
    .min_in = 7,
    .max_in = 7,
    .n_out = 3,
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
