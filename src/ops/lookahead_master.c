/* lookahead_master.c: lookahead of a parameter's master, the fourth input. The parameter is the
 * master rounded to nearest. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {{.name = "period", .type = ATTR_INT, .value = {.i = 5}},
                                        {.name = "rate", .type = ATTR_FLOAT, .value = {.f = 0.5}}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_master(c, 1));
    TRY(need_step(c, 2));
    if (call_int(c, 0) < 1 || !(call_float(c, 1) > 0.0 && call_float(c, 1) <= 1.0))
        return REJECT(c, "period must be positive and rate in (0, 1]");
    TRY(need_master(c, 3));
    out_like(c, 0, 0);
    out_like(c, 1, 1);
    out_like(c, 2, 3);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 3.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 1}, {ALIAS_UPDATE, 2, 3}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "bf16[3,5], f32[3,5], i32[1]=5, f32[3,5]"},
    {.text = "bf16[3,5], f32[3,5], i32[1]=6, f32[3,5]"},
    {.text = "f16[1030], f32[1030], i32[1]=4, f32[1030] {period=2, rate=0.3}"},
};
static const char *const rejects[] = {
    "bf16[3], f32[3], i32[1], f32[4]",
    "bf16[3], f32[3], i32[1], bf16[3]",
};

const struct op_def op_def_lookahead_master = {
    .name = "lookahead_master",
    .synopsis = "lookahead of master; param' = master' in param's dtype",
    .min_in = 4,
    .max_in = 4,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .granule = 1,
    .whole_inputs = 1u << 2,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
