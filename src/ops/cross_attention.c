#include "ops/cross_attention_support.h"

static const struct attr_def attrs[] = {
    CROSS_ATTENTION_ATTRS,
};

static enum status infer(const struct op_call *c)
{
    struct cross_dims d;
    TRY(cross_check(c, CROSS_Q, CROSS_MASK, &d));
    out_like(c, 0, CROSS_Q);
    out_set(c, 1, dtype_accumulator(c->in[CROSS_Q].dtype),
            shape_of(3, d.batch, d.heads, d.n_queries));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 1));
    const value_id in[] = {d_out[0],
                           n->in[CROSS_Q],
                           n->in[CROSS_KV],
                           n->out[0],
                           n->out[1],
                           node_input(n, CROSS_MASK),
                           node_input(n, CROSS_RNG)};
    if (!wants[CROSS_Q] && !wants[CROSS_KV])
        return OK;
    value_id dq = build_with(b, OP_cross_attention_grad, in, 3 + n->n_in, n->attrs);
    value_id dkv = build_output(b, 1);
    d_in[CROSS_Q] = wants[CROSS_Q] ? dq : VALUE_NONE;
    d_in[CROSS_KV] = wants[CROSS_KV] ? dkv : VALUE_NONE;
    return builder_status(b);
}

/* Scores and the weighted sum, as if no key was padding. */
static double flops(const struct op_call *c)
{
    struct cross_dims d = cross_dims_of(c, CROSS_Q);
    return cross_flops(&d, 2.0);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,8], f32[2,3,16] {heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[2,3,8], f32[2,7,16], i32[2,7]~2 {heads=2}"},
    {.text = "f32[3,4,16], f32[3,6,16], i32[3,6]~-1:2 {heads=4, kv_heads=2, scale=0.7}"},
    {.text = "f32[2,3,4], f32[2,5,8], i32[2,5]=0 {heads=1}"},
    {.text = "f32[1,1,5], f32[1,1,10], i32[1,1]=1 {heads=1}"},
    {.text = "f32[1,67,18], f32[1,131,18], i32[1,131]~3 {heads=2, kv_heads=1}"},
    {.text = "f32[1,131,18], f32[1,203,18], i32[1,203]~2 {heads=2, kv_heads=1, head_dim=9}"},
    {.text = "f32[2,5,8], f32[2,21,16], i32[2,21]~2, i64[2]~1000 {heads=2, dropout=0.5, seed=3}"},
    {.text = "f32[1,67,8], f32[1,18,8], _, i64[2]~1000 {heads=2, kv_heads=1, dropout=0.25}"},
    {.text = "f32[2,5,8], f32[2,6,16], i32[2,6]~2, i64[2]~1000 {heads=2, dropout=0.0}"},
};
static const char *const rejects[] = {
    "f32[2,5,8], f32[2,3,16] {heads=2, kv_heads=1, head_dim=4}",
    "f32[2,5,8], f32[2,3,16] {heads=0}",
    "f32[2,5,8], f32[2,3,16] {heads=3}",
    "f32[2,5,8], f32[2,3,15] {heads=2}",
    "f32[2,5,9], f32[2,3,18] {heads=2, head_dim=4}",
    "f32[2,5,24], f32[2,3,32] {heads=3, kv_heads=2, head_dim=8}",
    "f32[5,8], f32[5,16] {heads=2}",
    "f32[2,5,8], f32[3,16] {heads=2}",
    "f32[2,5,8], f32[3,5,16] {heads=2}",
    "f32[2,5,8], bf16[2,5,16] {heads=2}",
    "i32[2,5,8]~3, i32[2,5,16]~3 {heads=2}",
    "f32[2,5,8], f32[2,3,16], i32[2,5] {heads=2}",
    "f32[2,5,8], f32[2,3,16], i32[3] {heads=2}",
    "f32[2,5,8], f32[2,3,16], i64[2,3] {heads=2}",
    "f32[2,5,8], f32[2,3,16], f32[2,3] {heads=2}",
    "f32[2,5,8], f32[2,3,16] {heads=2, dropout=0.1}",
    "f32[2,5,8], f32[2,3,16], _, i64[2] {heads=2, dropout=1.0}",
    "f32[2,5,8], f32[2,3,16], _, i64[3] {heads=2, dropout=0.1}",
    "f32[2,5,8], f32[2,3,16], _, i64[2] {heads=2, dropout=0.1, seed=1048576}",
};

const struct op_def op_def_cross_attention = {
    .name = "cross_attention",
    .synopsis = "s[i,j] = scale q[i] k[j]; out[i] = sum_j drop(softmax_j(s[i,j])) v[j] per head, "
                "over the keys j whose mask is not 0; lse[i] = log sum_j exp(s[i,j]); both are 0 "
                "where there is no such key",
    .min_in = 2,
    .max_in = 4,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << CROSS_MASK | 1u << CROSS_RNG,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .module = MODULE_ATTENTION,
    .flops = flops,
    .index_limit = cross_index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
