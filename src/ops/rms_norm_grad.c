#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false},
    {"offset", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 1));
    const struct shape *dy = &c->in[0].shape;
    TRY(need_shape(c, 1, dy));
    TRY(need_weight(c, 2, 0, shape_last(dy)));
    struct shape rows = shape_without_last(*dy);
    TRY(need_statistics(c, 3, 0, &rows));
    if (call_has(c, 4)) {
        TRY(need_dtype(c, 4, c->in[0].dtype));
        TRY(need_shape(c, 4, dy));
    }
    enum dtype d;
    TRY(grad_dtype(c, RMS_NORM_GRAD_DTYPE, 0, &d));
    out_like(c, 0, 0);
    out_set(c, 1, d, shape_of(1, shape_last(dy)));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 9.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0},
    {ALIAS_MAY, 0, 1},
    {ALIAS_MAY, 0, 4},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[5], f32[3]+"},
    {.text = "f32[2,70,17], f32[2,70,17], f32[17], f32[2,70]+"},
    {.text = "f32[33], f32[33], f32[33], f32[]+"},
    {.text = "bf16[4,33], bf16[4,33], f32[33], f32[4]+ {dtype=f32}", .tolerance = 1e-2},
    {.text = "f32[2,70,17], f32[2,70,17], f32[17], f32[2,70]+, f32[2,70,17]"},
    {.text = "f32[5,64], f32[5,64], f32[64], f32[5]+, f32[5,64]"},
    {.text = "f32[3,5], f32[3,5], f32[5], f32[3]+ {offset=1.0}"},
    {.text = "bf16[5,64], bf16[5,64], f32[64], f32[5]+ {dtype=f32, offset=1.0}", .tolerance = 1e-2},
    {.text = "bf16[4,40], bf16[4,40], f32[40], f32[4]+, bf16[4,40] {dtype=f32}", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[3,4], f32[5], f32[3]",         "f32[3,5], f32[3,5], f32[3], f32[3]",
    "f32[3,5], f32[3,5], f32[5], f32[5]",         "f32[3,5], f32[3,5], f32[5], f64[3]",
    "f32[3,5], f32[3,5], f32[5], f32[3], f32[5]", "f32[3,5], f32[3,5], f32[5], f32[3], f16[3,5]"};

const struct op_def op_def_rms_norm_grad = {
    .name = "rms_norm_grad",
    .synopsis =
        "h = x rstd, g = dy (w + offset): dx = rstd (g - h avg(g h)) + add, dw = sum_rows(dy h)",
    .min_in = 4,
    .max_in = 5,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
