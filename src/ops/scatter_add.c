#include "ops/edge_support.h"

static const struct attr_def attrs[] = {EDGE_ROWS_ATTR};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 3));
    TRY(need_rows(c));
    const struct shape *x = &c->in[0].shape;
    TRY(need_edges(c, 1, x->dim[1]));
    out_set(c, 0, c->in[0].dtype, shape_of(3, x->dim[0], call_int(c, EDGE_ROWS), x->dim[2]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_gather, IN(d_out[0], n->in[1]), NO_ATTRS);
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return call_int(c, EDGE_ROWS);
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,7,3], i32[7]~5 {rows=5}"},
    {.text = "f32[1,90,33], i32[90]~40 {rows=40}"},
    {.text = "f32[3,1,1], i32[1]~2 {rows=2}"},
};
static const char *const rejects[] = {
    "f32[2,7,3], i32[6]~5 {rows=5}",
    "f32[2,7,3], i32[7]~5 {rows=0}",
    "f32[2,7,3], f32[7] {rows=5}",
    "f32[7,3], i32[7]~5 {rows=5}",
};

const struct op_def op_def_scatter_add = {
    .name = "scatter_add",
    .synopsis = "y[b, n, :] = sum of x[b, e, :] over the e with index[e] = n",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
