#include "ops/expert_support.h"

enum { DTYPE };

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 2));
    TRY(need_rank(c, 1, 2));
    TRY(need_offsets(c, 2));
    const struct shape *dy = &c->in[0].shape, *x = &c->in[1].shape;
    if (dy->dim[0] != x->dim[0])
        return REJECT(c, "dy has %lld rows, x has %lld", (long long)dy->dim[0],
                      (long long)x->dim[0]);
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 0, &d));
    struct shape s = shape_of(3, n_groups(c, 2), dy->dim[1], x->dim[1]);
    TRY(need_accumulator(c, 3, d, &s));
    out_set(c, 0, d, s);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[1];
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 3}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[7,4], f32[7,5], i32[4]"},
    {.text = "f32[33,37], f32[33,20], i32[3], f32[2,37,20]"},
    {.text = "f32[150,24], f32[150,72], i32[5]"},
    {.text = "f32[5,2], f32[5,3], i32[9], f32[8,2,3]"},
    {.text = "bf16[19,7], bf16[19,5], i32[3], f32[2,7,5] {dtype=f32}"},
    {.text = "bf16[80,16], bf16[80,24], i32[4] {dtype=f32}"},
};
static const char *const rejects[] = {
    "f32[7,4], f32[6,5], i32[4]",
    "f32[7,4], f32[7,5], i32[4], f32[4,5]",
    "bf16[7,4], bf16[7,5], i32[4], f32[3,4,5]",
    "f32[7,4], f16[7,5], i32[4]",
    "f32[7,4], f32[7,5], i32[1]",
};

const struct op_def op_def_grouped_linear_grad_weight = {
    .name = "grouped_linear_grad_weight",
    .synopsis = "dw[e, n, k] = acc[e, n, k] + sum over the rows r of group e of dy[r, n] x[r, k]",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .offset_inputs = 1u << 2,
    .aliases = aliases,
    .accumulate_in = 3,
    .accumulate_out = 0,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
