#include "ops/film_support.h"

static const struct attr_def attrs[] = {
    [ACTIVATED_GRAD_SLOPE] = {"slope", ATTR_FLOAT, {.f = 0.0}, false},
    [ACTIVATED_GRAD_DTYPE] = {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(infer_activated_grad(c));
    if (!call_has(c, ACTIVATED_GRAD_SCALE))
        return REJECT(c, "scale must be given");
    TRY(need_per_sample(c, ACTIVATED_GRAD_SCALE));
    out_like(c, 3, ACTIVATED_GRAD_SCALE);
    out_like(c, 4, ACTIVATED_GRAD_SCALE);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 24.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, ACTIVATED_GRAD_DY},
    {ALIAS_MAY, 0, ACTIVATED_GRAD_X},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f32[5]+, f32[3,5]"},
    {.text = "f32[2,3,4,64], f32[2,3,4,64], f32[64], f32[64], f32[64], f32[64]+, f32[2,64] "
             "{slope=0.01}"},
    {.text = "f32[3,200,6], f32[3,200,6], f32[6], _, f32[6], f32[6]+, f32[3,6] {slope=0.2}"},
    {.text = "f32[4,7,17], f32[4,7,17], _, f32[17], f32[17], f32[17]+, f32[4,17] {slope=0.1}"},
    {.text = "bf16[9,2,40], bf16[9,2,40], f32[40], f32[40], f32[40], f32[40]+, bf16[9,40] "
             "{dtype=f32}",
     .tolerance = 2e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], f32[5], f32[5], bf16[3,5]",
    "f32[3,5], f32[3,5], f32[5], f32[5], _, f32[5], f32[3,5]",
};

const struct op_def op_def_batch_norm_film_grad = {
    .name = "batch_norm_film_grad",
    .synopsis = "a = f(gamma h + beta), h = (x - mean) rstd: dscale = sum dy a and dshift = sum dy "
                "over a sample's places; the rest as batch_norm_activation_grad of scale dy",
    .min_in = 2,
    .max_in = 7,
    .n_out = 5,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << ACTIVATED_GRAD_GAMMA | 1u << ACTIVATED_GRAD_BETA,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
