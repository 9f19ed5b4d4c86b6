#include "ops/expert_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 2));
    TRY(need_rank(c, 1, 3));
    TRY(need_offsets(c, 2));
    const struct shape *x = &c->in[0].shape, *w = &c->in[1].shape;
    if (x->dim[1] != w->dim[2])
        return REJECT(c, "x has %lld columns, w has %lld", (long long)x->dim[1],
                      (long long)w->dim[2]);
    if (n_groups(c, 2) != w->dim[0])
        return REJECT(c, "offsets of %lld groups, w has %lld", (long long)n_groups(c, 2),
                      (long long)w->dim[0]);
    struct shape bias = shape_of(2, w->dim[0], w->dim[1]);
    if (call_has(c, 3)) {
        TRY(need_dtype(c, 3, c->in[0].dtype));
        TRY(need_shape(c, 3, &bias));
    }
    out_set(c, 0, c->in[0].dtype, shape_of(2, x->dim[0], w->dim[1]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], offsets = n->in[2];
    if (wants[0])
        d_in[0] = build(b, OP_grouped_linear_grad_input, IN(dy, n->in[1], offsets), NO_ATTRS);
    if (wants[1])
        d_in[1] = build(b, OP_grouped_linear_grad_weight, IN(dy, n->in[0], offsets), NO_ATTRS);
    if (node_input(n, 3) != VALUE_NONE && wants[3])
        d_in[3] = build(b, OP_group_sum_rows, IN(dy, offsets), NO_ATTRS);
    return builder_status(b);
}

/* Every row meets one group's weights. */
static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[1];
}

static const struct op_sample samples[] = {
    {.text = "f32[7,5], f32[3,4,5], i32[4]"},
    {.text = "f32[33,40], f32[2,37,40], i32[3], f32[2,37]"},
    {.text = "f32[150,72], f32[4,24,72], i32[5], f32[4,24]"},
    {.text = "f32[5,3], f32[8,2,3], i32[9]"},
    {.text = "f32[1,1], f32[1,1,1], i32[2], f32[1,1]"},
};
static const char *const rejects[] = {
    "f32[7,5], f32[3,4,6], i32[4]",   "f32[7,5], f32[3,4,5], i32[3]",
    "f32[7,5], f32[3,4,5], f32[4]",   "f32[7,5], f32[3,4,5], i32[4], f32[4]",
    "f32[7,5], bf16[3,4,5], i32[4]",  "f32[7,5], f32[4,5], i32[4]",
    "f32[2,7,5], f32[3,4,5], i32[4]",
};

const struct op_def op_def_grouped_linear = {
    .name = "grouped_linear",
    .synopsis = "y[r, n] = sum_k x[r, k] w[e, n, k] + bias[e, n] for the rows r of each group e",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 2,
    .offset_inputs = 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
