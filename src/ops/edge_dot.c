#include "ops/edge_support.h"

static const struct attr_def attrs[] = {
    {"heads", ATTR_INT, {.i = 0}, true},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 3));
    TRY(need_rank(c, 1, 3));
    TRY(need_rank(c, 2, 1));
    const struct shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    int64_t heads = call_int(c, EDGE_DOT_HEADS), n = c->in[2].shape.dim[0];
    if (a->dim[0] != b->dim[0] || a->dim[2] != b->dim[2])
        return REJECT(c, "both sides must have the same batch and channels");
    if (heads < 1 || a->dim[2] % heads != 0)
        return REJECT(c, "%lld channels are no multiple of %lld heads", (long long)a->dim[2],
                      (long long)heads);
    TRY(need_edges(c, 2, n));
    TRY(need_edges(c, 3, n));
    out_set(c, 0, c->in[0].dtype, shape_of(3, a->dim[0], n, heads));
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    return MIN(c->in[0].shape.dim[1], c->in[1].shape.dim[1]);
}

static double flops(const struct op_call *c)
{
    const struct shape *a = &c->in[0].shape;
    return 2.0 * (double)(a->dim[0] * c->in[2].shape.dim[0] * a->dim[2]);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,4,6], f32[2,5,6], i32[7]~4, i32[7]~5 {heads=3}"},
    {.text = "f32[1,30,66], f32[1,20,66], i32[90]~30, i32[90]~20 {heads=2}"},
    {.text = "f32[2,3,1030], f32[2,5,1030], i32[9]~3, i32[9]~5 {heads=1}"},
};
static const char *const rejects[] = {
    "f32[2,4,6], f32[2,5,7], i32[7]~4, i32[7]~5 {heads=3}",
    "f32[2,4,6], f32[1,5,6], i32[7]~4, i32[7]~5 {heads=3}",
    "f32[2,4,6], f32[2,5,6], i32[7]~4, i32[7]~5 {heads=4}",
    "f32[2,4,6], f32[2,5,6], i32[7]~4, i32[6]~5 {heads=3}",
    "f32[2,4,6], f32[2,5,6], f32[7], i32[7]~5 {heads=3}",
};

const struct op_def op_def_edge_dot = {
    .name = "edge_dot",
    .synopsis = "y[b, e, h] = sum_c x[b, i[e], h, c] z[b, j[e], h, c]",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
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
