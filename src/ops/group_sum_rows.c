#include "ops/expert_support.h"

enum { DTYPE };

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    TRY(need_offsets(c, 1));
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 0, &d));
    struct shape s = shape_of(2, n_groups(c, 1), c->in[0].shape.dim[1]);
    TRY(need_accumulator(c, 2, d, &s));
    out_set(c, 0, d, s);
    return OK;
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 2}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[7,4], i32[4]"},
    {.text = "f32[33,37], i32[3], f32[2,37]"},
    {.text = "f32[5,1030], i32[9], f32[8,1030]"},
    {.text = "bf16[19,7], i32[3], f32[2,7] {dtype=f32}"},
};
static const char *const rejects[] = {
    "f32[7], i32[4]",
    "f32[7,4], f32[4]",
    "f32[7,4], i32[4], f32[4]",
    "bf16[7,4], i32[4], f32[3,4]",
};

const struct op_def op_def_group_sum_rows = {
    .name = "group_sum_rows",
    .synopsis = "y[e, c] = acc[e, c] + sum over the rows r of group e of x[r, c]",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .offset_inputs = 1u << 1,
    .aliases = aliases,
    .accumulate_in = 2,
    .accumulate_out = 0,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
