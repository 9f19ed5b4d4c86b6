#include "ops/layer_support.h"

enum { DTYPE };

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 1));
    const struct shape *dy = &c->in[0].shape, *x = &c->in[1].shape;
    struct shape like_x = shape_with_last(*dy, shape_last(x));
    TRY(need_shape(c, 1, &like_x));
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 0, &d));
    struct shape s = shape_of(2, shape_last(dy), shape_last(x));
    TRY(need_accumulator(c, 2, d, &s));
    out_set(c, 0, d, s);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_rows(&c->in[0].shape) * (double)shape_elems(&c->out[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 2}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,4]"},
    {.text = "f32[2,3,17], f32[2,3,9], f32[17,9]"},
    {.text = "f32[33,37], f32[33,20], _"},
    {.text = "f32[6], f32[4], f32[6,4]"},
    {.text = "bf16[19,7], bf16[19,5], f32[7,5] {dtype=f32}"},
};
static const char *const rejects[] = {"f32[3,5], f32[4,5]", "f32[2,3,5], f32[6,4]",
                                      "f32[3,5], f32[3,4], f32[4,5]",
                                      "bf16[3,5], bf16[3,4], f32[5,4]", "f32[3,5], f16[3,4]"};

const struct op_def op_def_linear_grad_weight = {
    .name = "linear_grad_weight",
    .synopsis = "dw[n, k] = acc[n, k] + sum over rows of dy[..., n] x[..., k]",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    .accumulate_in = 2,
    .accumulate_out = 0,
    .by_rows = true,
    .whole_inputs = 1u << 0 | 1u << 1,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
