#include "ops/edge_support.h"

static const struct attr_def attrs[] = {EDGE_ROWS_ATTR};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 3));
    TRY(need_rank(c, 1, 3));
    TRY(need_rows(c));
    const struct shape *w = &c->in[0].shape, *x = &c->in[1].shape;
    if (w->dim[0] != x->dim[0] || w->dim[2] < 1 || x->dim[2] % w->dim[2] != 0)
        return REJECT(c, "%lld x %lld channels are not those of %lld x %lld heads",
                      (long long)x->dim[0], (long long)x->dim[2], (long long)w->dim[0],
                      (long long)w->dim[2]);
    TRY(need_edges(c, 2, w->dim[1]));
    TRY(need_edges(c, 3, w->dim[1]));
    out_set(c, 0, c->in[1].dtype, shape_of(3, x->dim[0], call_int(c, EDGE_ROWS), x->dim[2]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], from = n->in[2], to = n->in[3];
    if (wants[0])
        d_in[0] = build(b, OP_edge_dot, IN(dy, n->in[1], to, from),
                        ATTRS({.name = "heads", .i = build_shape(b, n->in[0])->dim[2]}));
    if (wants[1])
        d_in[1] = build(b, OP_edge_sum, IN(n->in[0], dy, to, from),
                        ATTRS({.name = "rows", .i = build_shape(b, n->in[1])->dim[1]}));
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return MIN(call_int(c, EDGE_ROWS), c->in[1].shape.dim[1]);
}

static double flops(const struct op_call *c)
{
    const struct shape *w = &c->in[0].shape;
    return 2.0 * (double)(w->dim[0] * w->dim[1] * c->in[1].shape.dim[2]);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,7,3], f32[2,4,6], i32[7]~4, i32[7]~4 {rows=4}"},
    {.text = "f32[1,90,2], f32[1,20,66], i32[90]~20, i32[90]~30 {rows=30}"},
    {.text = "f32[2,9,1], f32[2,5,1030], i32[9]~5, i32[9]~3 {rows=3}"},
};
static const char *const rejects[] = {
    "f32[2,7,3], f32[2,4,7], i32[7]~4, i32[7]~4 {rows=4}",
    "f32[2,7,3], f32[1,4,6], i32[7]~4, i32[7]~4 {rows=4}",
    "f32[2,7,3], f32[2,4,6], i32[6]~4, i32[7]~4 {rows=4}",
    "f32[2,7,3], f32[2,4,6], i32[7]~4, f32[7] {rows=4}",
    "f32[2,7,3], f32[2,4,6], i32[7]~4, i32[7]~4 {rows=0}",
};

const struct op_def op_def_edge_sum = {
    .name = "edge_sum",
    .synopsis = "y[b, n, h, :] = sum of w[b, e, h] x[b, from[e], h, :] over the e with to[e] = n",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 2 | 1u << 3,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
