/* attention.c: which probabilities are dropped is in attention_dropout.h. Dropping comes after the
 * softmax: lse knows nothing of it. */
#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    ATTENTION_ATTRS,
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(attention_check(c, 0, 1, &d));
    out_set(c, 0, c->in[0].dtype, shape_of(3, d.batch, d.n_tokens, d.heads * d.head_dim));
    out_set(c, 1, dtype_accumulator(c->in[0].dtype), shape_of(3, d.batch, d.heads, d.n_tokens));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 1));
    const value_id in[] = {d_out[0],  n->in[0],         n->out[0],
                           n->out[1], node_input(n, 1), node_input(n, 2)};
    if (wants[0]) /* with the random state and the positions where there are any */
        d_in[0] = build_with(b, OP_attention_grad, in, 3 + n->n_in, n->attrs);
    return builder_status(b);
}

/* Multiply-adds of scores and of the weighted sum, over the pairs that are not masked. */
static double flops(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    return 4.0 * attention_pairs(c, &d) * (double)(d.batch * d.heads * d.head_dim);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,24] {heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[1,7,32] {heads=4, kv_heads=2, head_dim=4, window=3}"},
    {.text = "f32[1,19,32] {heads=4, kv_heads=2, head_dim=4, window=8, block=4}"},
    {.text = "f32[2,1,12] {heads=1}"},
    {.text = "f32[1,9,15] {heads=1, causal=false, scale=0.7}"},
    {.text = "f32[1,67,36] {heads=2, kv_heads=1, head_dim=9}"},
    {.text = "f32[2,5,24], i64[2]~1000 {heads=2, dropout=0.5, seed=3}"},
    {.text = "f32[1,21,32], i64[2]~1000 {heads=4, kv_heads=2, window=18, dropout=0.25}"},
    {.text = "f32[1,18,12], i64[2]~1000 {heads=1, causal=false, dropout=0.1, seed=1048575}"},
    {.text = "f32[1,67,36], i64[2]~1000 {heads=2, kv_heads=1, dropout=0.3, seed=7}"},
    {.text = "f32[2,5,24], i64[2]~1000 {heads=2, dropout=0.0}"},
    {.text = "f32[1,203,24], i64[2]~1000 {heads=2, window=48, block=24, dropout=0.25}"},
    {.text = "f32[2,5,24] {heads=2, softcap=0.8}"},
    {.text = "f32[1,67,36] {heads=2, kv_heads=1, scale=2.0, window=20, softcap=1.5}"},
    {.text = "f32[1,19,12], i64[2]~1000 {heads=1, dropout=0.25, seed=2, softcap=0.5}"},
    {.text = "f32[2,21,24], _, i32[2,21] {heads=2}"},
    {.text = "f32[2,203,32], _, i32[2,203] {heads=4, kv_heads=2, window=30}"},
    {.text = "f32[2,101,32], _, i32[2,101] {heads=4, kv_heads=2, window=32, block=16}"},
    {.text =
         "f32[1,67,36], i64[2]~1000, i32[1,67] {heads=2, kv_heads=1, dropout=0.3, softcap=1.5}"},
};
static const char *const rejects[] = {"f32[2,5,24] {heads=2, kv_heads=1, head_dim=4}",
                                      "f32[2,5,24] {heads=0}",
                                      "f32[5,24] {heads=2}",
                                      "f32[2,5,24] {heads=2, window=-1}",
                                      "f32[2,5,24] {heads=2, causal=false, window=2}",
                                      "f32[2,5,24] {heads=2, block=2}",
                                      "f32[2,5,24] {heads=2, window=3, block=2}",
                                      "f32[2,5,24] {heads=2, window=2, block=-2}",
                                      "f32[2,5,25] {heads=2}",
                                      "i32[2,5,24]~3 {heads=2}",
                                      "f32[2,5,24] {heads=2, dropout=0.1}",
                                      "f32[2,5,24], i64[2] {heads=2, dropout=1.0}",
                                      "f32[2,5,24], i64[2] {heads=2, dropout=-0.1}",
                                      "f32[2,5,24], i64[2] {heads=2, dropout=0.1, seed=1048576}",
                                      "f32[2,5,24], i64[3] {heads=2, dropout=0.1}",
                                      "f32[2,5,24], i32[2] {heads=2, dropout=0.1}",
                                      "f32[2,5,24] {heads=2, softcap=-1.0}",
                                      "f32[2,5,24], _, i32[5] {heads=2}",
                                      "f32[2,5,24], _, i64[2,5] {heads=2}",
                                      "f32[2,5,24], _, i32[2,5] {heads=2, causal=false}"};

const struct op_def op_def_attention = {
    .name = "attention",
    .synopsis = "s[i,j] = scale q[i] k[j], softcap tanh(s / softcap) where that is not 0; "
                "out[i] = sum_j drop(softmax_j(s[i,j])) v[j] per head, j <= i when causal and "
                "j > i - window when window > 0 (with a block: the last of i's block in place of "
                "i), and j >= i - positions[i] where they are given: keys of its own sample; "
                "lse[i] = log sum_j exp(s[i,j])",
    .min_in = 1,
    .max_in = 3,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1 | 1u << 2,
    .position_inputs = 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .module = MODULE_ATTENTION,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
