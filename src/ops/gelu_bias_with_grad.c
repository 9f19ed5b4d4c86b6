#include "ops/layer_support.h"

extern const struct op_def op_def_gelu_bias_grad;

/* Those of gelu_bias_grad. */
static const struct attr_def attrs[] = {
    {.name = "approximate", .type = ATTR_BOOL},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}},
};

static enum status infer(const struct op_call *c)
{
    TRY(op_def_gelu_bias_grad.infer(c));
    out_like(c, 2, 1);
    return OK;
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 1}, {ALIAS_MAY, 2, 0}, {ALIAS_UPDATE, 1, 3}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[5]"},
    {.text = "f32[2,3,17], f32[2,3,17], f32[17] {approximate=true}"},
    {.text = "f32[2,1026], f32[2,1026], f32[1026], f32[1026]"},
    {.text = "f32[260,8], f32[260,8], f32[8], f32[8] {approximate=true}"},
    {.text = "f32[5,64], f32[5,64], f32[64] {approximate=true}"},
    {.text = "f32[9], f32[9], f32[9], f32[9]"},
    {.text = "bf16[6,40], bf16[6,40], f32[40], f32[40] {approximate=true, dtype=f32}",
     .tolerance = 1e-2},
    {.text = "bf16[6,40], bf16[6,40], bf16[40] {dtype=f32}", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,4], f32[5]",
    "f32[3,5], f64[3,5], f32[5]",
    "f32[3,5], f32[3,5], f32[3]",
    "f32[3,5], f32[3,5], bf16[5]",
    "f32[3,5], f32[3,5], f32[5], f32[3]",
    "f32[3,5], f32[3,5], f32[5], bf16[5]",
    "f32[3,5], f32[3,5], f32[5] {dtype=i32}",
    "i32[3], i32[3], f32[3]",
};

const struct op_def op_def_gelu_bias_with_grad = {
    .name = "gelu_bias_with_grad",
    .synopsis = "dx, dbias as gelu_bias_grad, y as gelu_bias: x is read once for all",
    .min_in = 3,
    .max_in = 4,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << 2,
    .aliases = aliases,
    .accumulate_in = 3,
    .accumulate_out = 1,
    .recompute = RECOMPUTE_NORMAL,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
