#include "ops/layer_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    TRY(need_dtype(c, 1, DTYPE_I32));
    struct shape s = c->in[1].shape;
    if (s.rank + 1 > MAX_RANK)
        return REJECT(c, "ids have rank %d, at most %d", s.rank, MAX_RANK - 1);
    s.dim[s.rank++] = c->in[0].shape.dim[1];
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        int64_t rows = build_shape(b, n->in[0])->dim[0];
        d_in[0] = build(b, OP_embedding_grad, IN(d_out[0], n->in[1]), ATTRS({"rows", .i = rows}));
    }
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return c->in[0].shape.dim[0];
}

static double flops(const struct op_call *c)
{
    (void)c;
    return 0.0;
}

static const struct op_sample samples[] = {
    {.text = "f32[10,4], i32[2,3]~10"},
    {.text = "f32[7,33], i32[5]~7"},
    {.text = "f32[3,1], i32[2,2,2]~3"},
};
static const char *const rejects[] = {"f32[10,4], f32[2]", "f32[10], i32[2]~3",
                                      "i32[10,4], i32[2]~3", "f32[4,2], i32[1,1,1,1,1,1]~3"};

const struct op_def op_def_embedding = {
    .name = "embedding",
    .synopsis = "y[..., c] = table[ids[...], c]",
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
