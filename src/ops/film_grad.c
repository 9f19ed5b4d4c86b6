#include "ops/film_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_elements(c));
    TRY(need_same_float(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    TRY(need_per_sample(c, 2));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    out_like(c, 2, 2);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0},
    {ALIAS_MAY, 0, 1},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,6], f32[3,6], f32[3,6]"},
    {.text = "f32[2,3,4,33], f32[2,3,4,33], f32[2,33]"},
    {.text = "f32[2,700,20], f32[2,700,20], f32[2,20]"},
    {.text = "f32[1,300,1], f32[1,300,1], f32[1,1]"},
    {.text = "bf16[2,9,2,40], bf16[2,9,2,40], bf16[2,40]", .tolerance = 2e-2},
};
static const char *const rejects[] = {
    "f32[3,6], f32[3,5], f32[3,6]",
    "f32[3,6], f32[3,6], f32[6]",
    "f32[3,6], f32[3,6], bf16[3,6]",
    "f32[0,6], f32[0,6], f32[0,6]",
};

const struct op_def op_def_film_grad = {
    .name = "film_grad",
    .synopsis = "dx = gamma dy; dgamma = sum dy x and dbeta = sum dy over a sample's places",
    .min_in = 3,
    .max_in = 3,
    .n_out = 3,
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
