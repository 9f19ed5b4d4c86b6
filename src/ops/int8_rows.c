/* int8_rows.c: activations as products of BitNet b1.58 see them: 8-bit integers times one scale for
 * each row, by the largest of its elements. */
#include "ops/layer_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 1));
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    (void)n;
    if (wants[0])
        d_in[0] = d_out[0];
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,3,33]"},
    {.text = "f32[64]"},
    {.text = "f32[2,2100]"},
    {.text = "bf16[4,40]", .tolerance = 8e-3},
    {.text = "f32[2,4]=0"},
};
static const char *const rejects[] = {"i32[3,5]~3", "f32[]"};

const struct op_def op_def_int8_rows = {
    .name = "int8_rows",
    .synopsis = "y = s round(x / s) over the last axis, s = max(max |x|, 1e-5) / 127; dx = dy",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .straight_through = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
