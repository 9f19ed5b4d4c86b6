/* ternary_weight.c: a matrix as products of BitNet b1.58 see it: every weight -1, 0 or 1 times one
 * scale, the mean size of the weights. Matrices that are stacked have a scale each.
 *
 * It is made of storage alone, in one pass over it: for every product again, and never kept. */
#include "ops/op_support.h"
#include "ops/ternary.h"

static const struct attr_def attrs[] = {
    {.name = "rows", .type = ATTR_INTS, .required = true}, /* of each matrix in the stack */
};

static enum status infer(const struct op_call *c)
{
    const struct attr *rows = &c->attrs[TERNARY_ROWS];
    int64_t left;
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    left = c->in[0].shape.dim[0];
    if (rows->n_ints < 1)
        return REJECT(c, "rows: there is at least one matrix");
    for (int i = 0; i < rows->n_ints; i++) {
        if (rows->ints[i] < 1 || rows->ints[i] > left)
            return REJECT(c, "rows: the matrices do not make up the %lld rows there are",
                          (long long)c->in[0].shape.dim[0]);
        left -= rows->ints[i];
    }
    if (left != 0)
        return REJECT(c, "rows: %lld rows are of no matrix", (long long)left);
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

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {rows=[3]}"},
    {.text = "f32[7,33] {rows=[4, 2, 1]}"},
    {.text = "f32[64,64] {rows=[64]}"},
    {.text = "f32[3,2100] {rows=[2, 1]}"},
    {.text = "bf16[6,40] {rows=[6]}", .tolerance = 8e-3},
    {.text = "f32[2,4]=0 {rows=[2]}"},
};
static const char *const rejects[] = {
    "f32[3,5] {rows=[2]}", "f32[3,5] {rows=[2, 2]}", "f32[3,5] {rows=[3, 0]}",
    "f32[3] {rows=[3]}",   "i32[3,5]~3 {rows=[3]}",
};

const struct op_def op_def_ternary_weight = {
    .name = "ternary_weight",
    .synopsis = "y = s clamp(round(w / s), -1, 1), s = max(avg |w|, 1e-5) of each matrix; dw = dy",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .straight_through = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_ALWAYS,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
