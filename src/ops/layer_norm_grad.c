#include "ops/layer_support.h"

enum { DTYPE };

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 1));
    const struct shape *dy = &c->in[0].shape;
    TRY(need_shape(c, 1, dy));
    if (!call_has(c, 3) || !call_has(c, 4))
        return REJECT(c, "mean and rstd must be given");
    if (call_has(c, 2))
        TRY(need_weight(c, 2, 0, shape_last(dy)));
    struct shape rows = shape_without_last(*dy);
    TRY(need_statistics(c, 3, 0, &rows));
    TRY(need_statistics(c, 4, 0, &rows));
    if (call_has(c, 5)) {
        TRY(need_dtype(c, 5, c->in[0].dtype));
        TRY(need_shape(c, 5, dy));
    }
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 0, &d));
    out_like(c, 0, 0);
    out_set(c, 1, d, shape_of(1, shape_last(dy)));
    out_set(c, 2, d, shape_of(1, shape_last(dy)));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 14.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0},
    {ALIAS_MAY, 0, 1},
    {ALIAS_MAY, 0, 5},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[5], f32[3], f32[3]+"},
    {.text = "f32[2,70,17], f32[2,70,17], f32[17], f32[2,70], f32[2,70]+"},
    {.text = "f32[4,33], f32[4,33], _, f32[4], f32[4]+"},
    {.text = "bf16[4,33], bf16[4,33], f32[33], f32[4], f32[4]+ {dtype=f32}", .tolerance = 1e-2},
    {.text = "f16[4,33], f16[4,33], f16[33], f32[4], f32[4]+", .tolerance = 1e-2},
    {.text = "f32[2,70,17], f32[2,70,17], f32[17], f32[2,70], f32[2,70]+, f32[2,70,17]"},
    {.text = "f32[5,64], f32[5,64], _, f32[5], f32[5]+, f32[5,64]"},
    {.text = "bf16[4,40], bf16[4,40], f32[40], f32[4], f32[4]+, bf16[4,40] {dtype=f32}",
     .tolerance = 1e-2},
};
static const char *const rejects[] = {"f32[3,5], f32[3,4], f32[5], f32[3], f32[3]",
                                      "f32[3,5], f32[3,5], f32[3], f32[3], f32[3]",
                                      "f32[3,5], f32[3,5], f32[5], f32[5], f32[3]",
                                      "f32[3,5], f32[3,5], f32[5]",
                                      "f32[3,5], f32[3,5], f32[5], f32[3], f64[3]",
                                      "f32[3,5], f32[3,5], f32[5], f32[3], f32[3], f32[5]",
                                      "f32[3,5], f32[3,5], f32[5], f32[3], f32[3], bf16[3,5]"};

const struct op_def op_def_layer_norm_grad = {
    .name = "layer_norm_grad",
    .synopsis = "h = (x - mean) rstd, g = dy w: dx = rstd (g - avg(g) - h avg(g h)) + add, "
                "dw = sum_rows(dy h), db = sum_rows(dy)",
    .min_in = 2, /* w may be absent before mean and rstd, which may not */
    .max_in = 6,
    .n_out = 3,
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
