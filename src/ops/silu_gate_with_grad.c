#include "ops/op_support.h"

extern const struct op_def op_def_silu_gate_grad;

static enum status infer(const struct op_call *c)
{
    TRY(op_def_silu_gate_grad.infer(c));
    out_like(c, 1, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 13.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 1}, {ALIAS_MAY, 1, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,10]"},      {.text = "f32[2,3,17], f32[2,3,34]"},
    {.text = "f32[1,1050], f32[1,2100]"}, {.text = "f32[9,64], f32[9,128]"},
    {.text = "f32[1], f32[2]"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,5]",
    "f32[3,5], f32[3,11]",
    "f32[3,5], f64[3,10]",
    "f32[], f32[]",
};

const struct op_def op_def_silu_gate_with_grad = {
    .name = "silu_gate_with_grad",
    .synopsis = "dx as silu_gate_grad, y as silu_gate: x is read once for both",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
