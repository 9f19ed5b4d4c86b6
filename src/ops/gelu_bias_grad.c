#include "ops/layer_support.h"

enum { APPROXIMATE, DTYPE };

static const struct attr_def attrs[] = {
    {.name = "approximate", .type = ATTR_BOOL},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    struct shape bias = shape_of(1, shape_last(&c->in[0].shape));
    TRY(need_weight(c, 2, 0, bias.dim[0]));
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 0, &d));
    TRY(need_accumulator(c, 3, d, &bias));
    out_like(c, 0, 0);
    out_set(c, 1, d, bias);
    return OK;
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_UPDATE, 1, 3}, {ALIAS_NONE, 0, 0}};

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

const struct op_def op_def_gelu_bias_grad = {
    .name = "gelu_bias_grad",
    .synopsis = "dx = dy gelu'(x + bias), dbias[c] = sum over rows of dx[..., c] (+ acc[c])",
    .min_in = 3,
    .max_in = 4,
    .n_out = 2,
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
