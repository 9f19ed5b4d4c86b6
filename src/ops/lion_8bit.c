/* lion_8bit.c: Lion with m in 8-bit codes. Inputs: param, grad, codes of m, the largest |m| of each
 * block of 256, lr, step (counts from 1), scale. m is coded as that of adamw_8bit, and as
 * bitsandbytes does; the parameter is updated with m as it was decoded. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {LION_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    int lr;
    TRY(need_lion(c, &lr));
    TRY(need_dtype(c, 2, DTYPE_U8));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    out_like(c, 2, 3);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 16.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_UPDATE, 2, 3}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], u8[3,5]~256, f32[1]+, f32[1]=0.01, i32[1]=3, f32[1]+"},
    {.text = "f32[1030], f32[1030], u8[1030]~256, f32[5]+, f32[1]=0.01, i32[1]=1, f32[1]+ "
             "{beta1=0.8, beta2=0.95, weight_decay=0.1}"},
    {.text = "f32[512], f32[512], u8[512], f32[2]=0, f32[1]=0.01, i32[1]=1, f32[1]=1"},
    {.text = "f32[300], f32[300]=0, u8[300]~256, f32[2]+, f32[1]=0.01, i32[1]=50, f32[1]=1"},
    {.text = "bf16[257], bf16[257], u8[257]~256, f32[2]+, f32[1]=0.01, i32[1]=7, f32[1]=0.5"},
    {.text = "bf16[2057], bf16[2057], u8[2057]~256, f32[9]+, f32[1]=0.01, i32[1]=100, f32[1]=1 "
             "{seed=7}"},
    {.text = "f32[5], f32[5], u8[5]~256, f32[1]+, f32[1]=0.01, i32[1]=2, f32[1]=0"},
};
static const char *const rejects[] = {
    "f32[3], f32[4], u8[3], f32[1], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], u8[4], f32[1], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], u8[3], f32[2], f32[1], i32[1], f32[1]",
    "f32[257], f32[257], u8[257], f32[1], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[1], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], u8[3], f32[1], f32[1], i64[1], f32[1]",
};

const struct op_def op_def_lion_8bit = {
    .name = "lion_8bit",
    .synopsis = "lion with m as codes: m = map[codes] absmax of the block; absmax' = max |m'|, "
                "codes' = nearest of map to m' / absmax'",
    .min_in = 7,
    .max_in = 7,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 1,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_CODED_SLICES(4),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
