#include "ops/cross_attention_support.h"

static const struct attr_def attrs[] = {
    CROSS_ATTENTION_ATTRS,
};

static enum status infer(const struct op_call *c)
{
    struct cross_dims d;
    TRY(cross_check(c, CROSS_GRAD_Q, CROSS_GRAD_MASK, &d));
    struct shape lse = shape_of(3, d.batch, d.heads, d.n_queries);
    TRY(need_same_float(c, CROSS_GRAD_DOUT, CROSS_GRAD_OUT));
    TRY(need_shape(c, CROSS_GRAD_DOUT, &c->in[CROSS_GRAD_Q].shape));
    TRY(need_shape(c, CROSS_GRAD_OUT, &c->in[CROSS_GRAD_Q].shape));
    TRY(need_statistics(c, CROSS_GRAD_LSE, CROSS_GRAD_Q, &lse));
    out_like(c, 0, CROSS_GRAD_Q);
    out_like(c, 1, CROSS_GRAD_KV);
    return OK;
}

/* Five products where the forward pass has two. */
static double flops(const struct op_call *c)
{
    struct cross_dims d = cross_dims_of(c, CROSS_GRAD_Q);
    return cross_flops(&d, 5.0);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,8], f32[2,5,8], f32[2,3,16], f32[2,5,8], f32[2,2,5]+ {heads=2}"},
    {.text = "f32[2,3,8], f32[2,3,8], f32[2,7,16], f32[2,3,8], f32[2,2,3]+, i32[2,7]~2 "
             "{heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[3,4,16], f32[3,4,16], f32[3,6,16], f32[3,4,16], f32[3,4,4]+, i32[3,6]~-1:2 "
             "{heads=4, kv_heads=2, scale=0.7}"},
    {.text = "f32[2,3,4], f32[2,3,4], f32[2,5,8], f32[2,3,4], f32[2,1,3]+, i32[2,5]=0 {heads=1}"},
    {.text = "f32[1,1,5], f32[1,1,5], f32[1,1,10], f32[1,1,5], f32[1,1,1]+ {heads=1}"},
    {.text = "f32[1,67,18], f32[1,67,18], f32[1,131,18], f32[1,67,18], f32[1,2,67]+, i32[1,131]~3 "
             "{heads=2, kv_heads=1}"},
    {.text = "f32[1,131,18], f32[1,131,18], f32[1,203,18], f32[1,131,18], f32[1,2,131]+, "
             "i32[1,203]~2 {heads=2, kv_heads=1, head_dim=9}"},
    {.text = "f32[2,5,8], f32[2,5,8], f32[2,21,16], f32[2,5,8], f32[2,2,5]+, i32[2,21]~2, "
             "i64[2]~1000 {heads=2, dropout=0.5, seed=3}"},
    {.text = "f32[1,67,8], f32[1,67,8], f32[1,18,8], f32[1,67,8], f32[1,2,67]+, _, i64[2]~1000 "
             "{heads=2, kv_heads=1, dropout=0.25}"},
    {.text = "bf16[1,9,8], bf16[1,9,8], bf16[1,12,16], bf16[1,9,8], f32[1,2,9]+, i32[1,12]~2 "
             "{heads=2}",
     .tolerance = 2e-2},
};
static const char *const rejects[] = {
    "f32[2,5,8], f32[2,5,8], f32[2,3,16], f32[2,5,8], f32[2,5,2] {heads=2}",
    "f32[2,5,4], f32[2,5,8], f32[2,3,16], f32[2,5,8], f32[2,2,5] {heads=2}",
    "f32[2,5,8], f32[2,5,8], f32[2,3,16], f32[2,4,8], f32[2,2,5] {heads=2}",
    "f32[2,5,8], f32[2,5,8], f32[2,3,8], f32[2,5,8], f32[2,2,5] {heads=2}",
    "bf16[2,5,8], bf16[2,5,8], bf16[2,3,16], bf16[2,5,8], bf16[2,2,5] {heads=2}",
    "f32[2,5,8], f32[2,5,8], f32[2,3,16], f32[2,5,8], f32[2,2,5], i32[2,5] {heads=2}",
    "f32[2,5,8], f32[2,5,8], f32[2,3,16], f32[2,5,8], f32[2,2,5] {heads=2, dropout=0.1}",
    "f32[2,5,8], f32[2,5,8], f32[2,3,16], f32[2,5,8], f32[2,2,5], _, i64[1] {heads=2, dropout=0.1}",
};

const struct op_def op_def_cross_attention_grad = {
    .name = "cross_attention_grad",
    .synopsis = "p = exp(s - lse) over keys that are no padding, ds = p (drop(dout v) - "
                "rowsum(dout out)) scale: dq = ds k, dk = ds^T q, dv = drop(p)^T dout",
    .min_in = 5,
    .max_in = 7,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = cross_index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
