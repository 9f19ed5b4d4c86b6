/* muon_update.c: a step along a direction whose length is what it should be. Inputs: param,
 * direction, lr, step (counts from 1), scale, which is not a factor: 0 leaves param unchanged, as
 * adamw's does; seed is adamw's too. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {{.name = "weight_decay", .type = ATTR_FLOAT},
                                        {.name = "seed", .type = ATTR_INT}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_float(c, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    TRY(need_number(c, 2));
    TRY(need_step(c, 3));
    TRY(need_number(c, 4));
    if (!(call_float(c, 0) >= 0.0))
        return REJECT(c, "weight_decay must not be negative");
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[1]=0.1, i32[1]=1, f32[1]+ {weight_decay=0.1}"},
    {.text = "f32[1030], f32[1030], f32[1]=0.1, i32[1]=5, f32[1]+"},
    {.text = "bf16[37], f32[37], f32[1]=0.1, i32[1]=2, f32[1]=0.5"},
    {.text = "bf16[2057], bf16[2057], f32[1]=0.1, i32[1]=2, f32[1]=0.5 {seed=5}"},
    {.text = "f32[5], f32[5], f32[1]=0.1, i32[1]=1, f32[1]=0"},
};
static const char *const rejects[] = {
    "f32[3], f32[4], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[1], i64[1], f32[1]",
    "f32[3], f32[3], f32[1], i32[1], f32[2]",
    "f32[3], f32[3], f32[1], i32[1], f32[1] {weight_decay=-1.0}",
};

const struct op_def op_def_muon_update = {
    .name = "muon_update",
    .synopsis = "param' = param (1 - lr weight_decay) - lr direction",
    .min_in = 5,
    .max_in = 5,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
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
