/* muon_momentum_8bit.c: muon_momentum with buf in 8-bit codes. Inputs: grad, codes of buf, the
 * largest |buf| of each block of 256, scale. The direction is that of buf before it is coded. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {
    {.name = "momentum", .type = ATTR_FLOAT, .value = {.f = 0.95}},
    {.name = "nesterov", .type = ATTR_BOOL},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}}};

static enum status infer(const struct op_call *c)
{
    enum dtype dtype = DTYPE_NONE;
    TRY(need_muon_momentum(c, true, &dtype));
    out_like(c, 0, 1);
    out_like(c, 1, 2);
    out_set(c, 2, dtype, c->in[0].shape);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 12.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 1}, {ALIAS_UPDATE, 1, 2}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], u8[3,5]~256, f32[1]+, f32[1]+ {nesterov=true}"},
    {.text = "f32[33,70], u8[33,70]~256, f32[10]+, f32[1]+ {momentum=0.5}"},
    {.text = "bf16[19,21], u8[19,21]~256, f32[2]+, f32[1]=0.5 {nesterov=true}"},
    {.text = "f32[19,21], u8[19,21], f32[2]=0, f32[1]=0.5 {dtype=bf16}"},
    {.text = "f32[4,3], u8[4,3]~256, f32[1]+, f32[1]=0"},
};
static const char *const rejects[] = {
    "f32[3,5], u8[3,4], f32[1], f32[1]",
    "f32[3,5], u8[3,5], f32[2], f32[1]",
    "f32[3,5], f32[3,5], f32[1], f32[1]",
    "f32[3,5], u8[3,5], f32[1], f32[2]",
};

const struct op_def op_def_muon_momentum_8bit = {
    .name = "muon_momentum_8bit",
    .synopsis = "muon_momentum with buf as codes: buf = map[codes] absmax of the block",
    .min_in = 4,
    .max_in = 4,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 0,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
