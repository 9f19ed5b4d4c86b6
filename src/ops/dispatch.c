#include "ops/expert_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    TRY(need_rank(c, 1, 1));
    int64_t n = c->in[0].shape.dim[0], n_rows = c->in[1].shape.dim[0];
    TRY(need_permutation(c, 1, n_rows));
    if (n < 1 || n_rows < n || n_rows % n != 0)
        return REJECT(c, "%lld rows are no multiple of %lld tokens", (long long)n_rows,
                      (long long)n);
    TRY(need_slot_weights(c, 3, n, n_rows / n));
    out_set(c, 0, c->in[0].dtype, shape_of(2, n_rows, c->in[0].shape.dim[1]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], weights = node_input(n, 3);
    int64_t slots = build_shape(b, n->in[1])->dim[0] / build_shape(b, n->in[0])->dim[0];
    if (wants[0]) {
        const value_id in[] = {dy, n->in[1], n->in[2], weights};
        d_in[0] = build(b, OP_combine, in, weights == VALUE_NONE ? 3 : 4,
                        ATTRS({.name = "slots", .i = slots}));
    }
    if (weights != VALUE_NONE && wants[3])
        d_in[3] = build(b, OP_combine_grad_weights, IN(n->in[0], dy, n->in[1], n->in[2]), NO_ATTRS);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return call_has(c, 3) ? (double)shape_elems(&c->out[0].shape) : 0.0;
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5], i32[6], i32[6]"},
    {.text = "f32[3,5], i32[6], i32[6], f32[3,2]"},
    {.text = "f32[7,33], i32[7], i32[7], f32[7,1]"},
    {.text = "f32[5,1030], i32[15], i32[15]"},
};
static const char *const rejects[] = {
    "f32[3,5], i32[7], i32[7]",
    "f32[3,5], i32[6], i32[5]",
    "f32[3,5], i32[6], i32[6], f32[6]",
    "f32[3,5], f32[6], i32[6]",
    "bf16[3,5], i32[6], i32[6], bf16[3,2]",
};

const struct op_def op_def_dispatch = {
    .name = "dispatch",
    .synopsis = "y[r, c] = weights[order[r]] x[order[r] / k, c], k rows of each token; without "
                "weights 1",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1 | 1u << 2,
    .permutation_inputs = 1u << 1 | 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
