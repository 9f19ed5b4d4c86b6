#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    struct shape s = c->in[1].shape;
    if (s.rank < 1 || s.dim[s.rank - 1] % 2 != 0)
        return REJECT(c, "x's last axis must be even: gate, then up");
    s.dim[s.rank - 1] /= 2;
    TRY(need_shape(c, 0, &s));
    out_like(c, 0, 1);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 12.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,10]"},
    {.text = "f32[2,3,17], f32[2,3,34]"},
    {.text = "f32[1,1050], f32[1,2100]"},
    {.text = "f32[1], f32[2]"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,5]",
    "f32[3,5], f32[3,11]",
    "f32[3,5], f64[3,10]",
    "f32[], f32[]",
};

const struct op_def op_def_silu_gate_grad = {
    .name = "silu_gate_grad",
    .synopsis = "dx = [dy u silu'(g), dy silu(g)], where the last axis of x is [g, u]",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
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
