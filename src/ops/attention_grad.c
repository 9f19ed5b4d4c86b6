#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    ATTENTION_ATTRS,
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(attention_check(c, 1, 4, &d));
    struct shape out = shape_of(3, d.batch, d.n_tokens, d.heads * d.head_dim);
    struct shape lse = shape_of(3, d.batch, d.heads, d.n_tokens);
    TRY(need_same_float(c, 0, 2));
    TRY(need_shape(c, 0, &out));
    TRY(need_shape(c, 2, &out));
    TRY(need_statistics(c, 3, 1, &lse));
    out_like(c, 0, 1);
    return OK;
}

/* Five products where the forward pass has two. */
static double flops(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 1);
    return 10.0 * attention_pairs(c, &d) * (double)(d.batch * d.heads * d.head_dim);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,2,5]+ {heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[1,7,16], f32[1,7,32], f32[1,7,16], f32[1,4,7]+ {heads=4, kv_heads=2, window=3}"},
    {.text = "f32[1,203,16], f32[1,203,32], f32[1,203,16], f32[1,4,203]+ "
             "{heads=4, kv_heads=2, window=48, block=24}"},
    {.text = "f32[2,1,4], f32[2,1,12], f32[2,1,4], f32[2,1,1]+ {heads=1}"},
    {.text = "f32[1,9,5], f32[1,9,15], f32[1,9,5], f32[1,1,9]+ {heads=1, causal=false, scale=0.7}"},
    {.text = "f32[1,67,18], f32[1,67,36], f32[1,67,18], f32[1,2,67]+ {heads=2, kv_heads=1}"},
    {.text = "bf16[1,9,8], bf16[1,9,24], bf16[1,9,8], f32[1,2,9]+ {heads=2}", .tolerance = 2e-2},
    {.text = "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,2,5]+, i64[2]~1000 "
             "{heads=2, dropout=0.5, seed=3}"},
    {.text = "f32[1,21,16], f32[1,21,32], f32[1,21,16], f32[1,4,21]+, i64[2]~1000 "
             "{heads=4, kv_heads=2, window=18, dropout=0.25}"},
    {.text = "f32[1,18,4], f32[1,18,12], f32[1,18,4], f32[1,1,18]+, i64[2]~1000 "
             "{heads=1, causal=false, dropout=0.1, seed=1048575}"},
    {.text = "f32[1,67,18], f32[1,67,36], f32[1,67,18], f32[1,2,67]+, i64[2]~1000 "
             "{heads=2, kv_heads=1, dropout=0.3, seed=7}"},
    {.text = "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,2,5]+ {heads=2, softcap=0.8}"},
    {.text = "f32[1,67,18], f32[1,67,36], f32[1,67,18], f32[1,2,67]+ "
             "{heads=2, kv_heads=1, window=20, softcap=1.5}"},
    {.text = "f32[1,18,4], f32[1,18,12], f32[1,18,4], f32[1,1,18]+, i64[2]~1000 "
             "{heads=1, causal=false, dropout=0.1, softcap=0.5}"},
    {.text = "f32[2,21,8], f32[2,21,24], f32[2,21,8], f32[2,2,21]+, _, i32[2,21] {heads=2}"},
    {.text = "f32[2,203,16], f32[2,203,32], f32[2,203,16], f32[2,4,203]+, _, i32[2,203] "
             "{heads=4, kv_heads=2, window=30}"},
    {.text = "f32[1,67,18], f32[1,67,36], f32[1,67,18], f32[1,2,67]+, i64[2]~1000, i32[1,67] "
             "{heads=2, kv_heads=1, dropout=0.3, softcap=1.5}"},
};
static const char *const rejects[] = {
    "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,5,2] {heads=2}",
    "f32[2,5,4], f32[2,5,24], f32[2,5,8], f32[2,2,5] {heads=2}",
    "f32[2,5,8], f32[2,5,24], f32[2,4,8], f32[2,2,5] {heads=2}",
    "bf16[2,5,8], bf16[2,5,24], bf16[2,5,8], bf16[2,2,5] {heads=2}",
    "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,2,5] {heads=2, dropout=0.1}",
    "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,2,5], i64[1] {heads=2, dropout=0.1}",
    "f32[2,5,8], f32[2,5,24], f32[2,5,8], f32[2,2,5], _, i32[2,4] {heads=2}"};

const struct op_def op_def_attention_grad = {
    .name = "attention_grad",
    .synopsis = "p = exp(s - lse), ds = p (drop(dout v) - rowsum(dout out)) scale, times "
                "1 - (s / softcap)^2 where that is not 0: "
                "dq = ds k, dk = ds^T q, dv = drop(p)^T dout",
    .min_in = 4,
    .max_in = 6,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .position_inputs = 1u << 5,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
