#include "ops/expert_support.h"

static const struct attr_def attrs[] = {{"factor", ATTR_FLOAT, {.f = 1.0}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 2));
    TRY(need_rank(c, 1, 2));
    struct shape one = shape_of(1, INT64_C(1));
    TRY(need_shape(c, 0, &one));
    TRY(need_shape(c, 2, &one));
    if (c->in[1].dtype != dtype_accumulator(c->in[1].dtype))
        return REJECT(c, "logits must be f32 or f64, not %s", dtype_name(c->in[1].dtype));
    if (c->in[1].shape.dim[1] < 1)
        return REJECT(c, "there are no logits");
    out_like(c, 0, 1);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 7.0 * (double)shape_elems(&c->in[1].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 1}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[1], f32[5,4], f32[1]+ {factor=0.5}"},
    {.text = "f32[1], f32[40,33], f32[1]+"},
    {.text = "f32[1], f32[3,1], f32[1]"},
};
static const char *const rejects[] = {
    "f32[1], f32[5], f32[1]",
    "f32[2], f32[5,4], f32[1]",
    "bf16[1], bf16[5,4], bf16[1]",
};

const struct op_def op_def_square_lse_grad = {
    .name = "square_lse_grad",
    .synopsis = "dz[n, e] = 2 dy factor count lse[n] softmax(z[n, :])[e]",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
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
