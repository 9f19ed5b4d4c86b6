#include "ops/edge_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 3));
    TRY(need_rank(c, 1, 1));
    TRY(need_dtype(c, 1, DTYPE_I32));
    const struct shape *x = &c->in[0].shape;
    out_set(c, 0, c->in[0].dtype, shape_of(3, x->dim[0], c->in[1].shape.dim[0], x->dim[2]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_scatter_add, IN(d_out[0], n->in[1]),
                        ATTRS({.name = "rows", .i = build_shape(b, n->in[0])->dim[1]}));
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return c->in[0].shape.dim[1];
}

static double flops(const struct op_call *c)
{
    (void)c;
    return 0.0;
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,3], i32[7]~5"},
    {.text = "f32[1,40,33], i32[90]~40"},
    {.text = "f32[3,2,1], i32[1]~2"},
};
static const char *const rejects[] = {"f32[2,5,3], f32[7]", "f32[5,3], i32[7]~5",
                                      "f32[2,5,3], i32[7,1]~5", "i32[2,5,3]~4, i32[7]~5"};

const struct op_def op_def_gather = {
    .name = "gather",
    .synopsis = "y[b, e, :] = x[b, index[e], :]",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
