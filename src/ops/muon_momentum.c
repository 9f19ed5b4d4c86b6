/* muon_momentum.c: the momentum of Muon, and the direction that is to be made orthogonal. Inputs:
 * grad, buf, scale. scale = 0 leaves buf unchanged, and the direction is 0. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {
    {.name = "momentum", .type = ATTR_FLOAT, .value = {.f = 0.95}},
    {.name = "nesterov", .type = ATTR_BOOL},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}}};

static enum status infer(const struct op_call *c)
{
    enum dtype dtype = DTYPE_NONE;
    TRY(need_muon_momentum(c, false, &dtype));
    out_like(c, 0, 1);
    out_set(c, 1, dtype, c->in[0].shape);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 6.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[1]+ {nesterov=true}"},
    {.text = "f32[33,70], f32[33,70], f32[1]+ {momentum=0.5}"},
    {.text = "bf16[19,21], f32[19,21], f32[1]=0.5 {nesterov=true}"},
    {.text = "f32[19,21], f32[19,21], f32[1]=0.5 {dtype=bf16}"},
    {.text = "f32[4,3], f32[4,3], f32[1]=0"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,4], f32[1]",
    "f32[3,5], f32[3,5], f32[2]",
    "f32[3,5], f32[3,5], f32[1] {momentum=1.0}",
    "f32[3,5], i32[3,5], f32[1]",
};

const struct op_def op_def_muon_momentum = {
    .name = "muon_momentum",
    .synopsis =
        "g = scale grad; buf' = momentum buf + (1 - momentum) g; y = nesterov ? (1 - momentum) g + "
        "momentum buf' : buf'",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
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
