/* inverse_norm.c: what a tensor is multiplied by to have length 1, from its sum of squares. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {
    {.name = "epsilon", .type = ATTR_FLOAT, .value = {.f = 1e-7}}};

static enum status infer(const struct op_call *c)
{
    TRY(need_number(c, 0));
    if (!(call_float(c, 0) > 0.0))
        return REJECT(c, "epsilon must be positive");
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 3.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[1]+"},
    {.text = "f32[1]=0"},
    {.text = "f32[1]+ {epsilon=0.9}"},
};
static const char *const rejects[] = {
    "f32[2]",
    "i32[1]",
    "f32[1] {epsilon=0.0}",
};

const struct op_def op_def_inverse_norm = {
    .name = "inverse_norm",
    .synopsis = "y = 1 / max(sqrt(squares), epsilon)",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
