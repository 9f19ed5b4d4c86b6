#include "ops/edge_support.h"

static const struct attr_def attrs[] = {EDGE_ROWS_ATTR};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 3));
    TRY(need_shape(c, 1, &c->in[0].shape));
    TRY(need_rows(c));
    TRY(need_edges(c, 2, c->in[0].shape.dim[1]));
    out_like(c, 0, 0);
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    return call_int(c, EDGE_ROWS);
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,7,3], f32[2,7,3], i32[7]~4 {rows=4}"},
    {.text = "f32[1,90,8], f32[1,90,8], i32[90]~20 {rows=20}"},
    {.text = "f32[3,1,1], f32[3,1,1], i32[1]~2 {rows=2}"},
};
static const char *const rejects[] = {
    "f32[2,7,3], f32[2,7,2], i32[7]~5 {rows=5}",
    "f32[2,7,3], f32[2,7,3], i32[6]~5 {rows=5}",
    "f32[2,7,3], f32[2,7,3], i32[7]~5 {rows=0}",
    "f32[2,7,3], bf16[2,7,3], i32[7]~5 {rows=5}",
};

const struct op_def op_def_edge_softmax_grad = {
    .name = "edge_softmax_grad",
    .synopsis = "dx[b, e, h] = y (dy - sum of dy y over the edges that go to e's node)",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .no_grad_inputs = 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
