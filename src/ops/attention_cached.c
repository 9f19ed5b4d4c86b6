#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    QKV_ATTRS,
    {"window", ATTR_INT, {.i = 0}, false},
    {"scale", ATTR_FLOAT, {.f = 0.0}, false},
    {"softcap", ATTR_FLOAT, {.f = 0.0}, false},
    {"block", ATTR_INT, {.i = 0}, false},
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(qkv_check(c, 0, &d));
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 1, 5));
    int64_t n_slots = c->in[1].shape.dim[2];
    struct shape cache = shape_of(5, (int64_t)2, d.batch, n_slots, d.kv_heads, d.head_dim);
    TRY(need_shape(c, 1, &cache));
    if (d.n_tokens > n_slots)
        return REJECT(c, "%lld tokens do not fit a cache of %lld", (long long)d.n_tokens,
                      (long long)n_slots);
    struct shape one = shape_of(1, (int64_t)1);
    TRY(need_dtype(c, 2, DTYPE_I32));
    TRY(need_shape(c, 2, &one));
    TRY(need_window(c, CACHED_WINDOW, CACHED_BLOCK));
    TRY(need_softcap(c, CACHED_CAP));
    out_set(c, 0, c->in[0].dtype, shape_of(3, d.batch, d.n_tokens, d.heads * d.head_dim));
    out_like(c, 1, 1);
    return OK;
}

/* As if the cache were full: the position is known only when it runs. */
static double flops(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    return 4.0 * (double)(d.batch * d.n_tokens * d.heads * d.head_dim) *
           (double)c->in[1].shape.dim[2];
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 1, 1}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[2,1,24], f32[2,2,6,2,4], i32[1]=5 {heads=2}"},
    {.text = "f32[1,3,32], f32[2,1,9,2,4], i32[1]=4 {heads=4, kv_heads=2, window=3}"},
    {.text = "f32[1,3,32], f32[2,1,9,2,4], i32[1]=5 {heads=4, kv_heads=2, window=4, block=2}"},
    {.text = "f32[1,11,36], f32[2,1,16,1,9], i32[1]=4 {heads=2, kv_heads=1, window=6, block=3}"},
    {.text = "f32[1,5,36], f32[2,1,5,1,9], i32[1]=0 {heads=2, kv_heads=1, scale=0.7}"},
    {.text = "f32[1,11,36], f32[2,1,16,1,9], i32[1]=4 {heads=2, kv_heads=1}"},
    {.text = "f32[1,3,32], f32[2,1,9,2,4], i32[1]=4 {heads=4, kv_heads=2, softcap=0.7}"},
    {.text = "f32[1,11,36], f32[2,1,16,1,9], i32[1]=4 {heads=2, kv_heads=1, softcap=1.2}"},
};
static const char *const rejects[] = {"f32[2,1,24], f32[2,2,6,4,2], i32[1]=0 {heads=2}",
                                      "f32[2,1,24], f32[1,2,6,2,4], i32[1]=0 {heads=2}",
                                      "f32[2,7,24], f32[2,2,6,2,4], i32[1]=0 {heads=2}",
                                      "f32[2,1,24], f32[2,2,6,2,4], f32[1]=0 {heads=2}",
                                      "f32[2,1,24], f32[2,2,6,2,4], i32[2]=0 {heads=2}"};

const struct op_def op_def_attention_cached = {
    .name = "attention_cached",
    .synopsis = "cache[:, b, position + t] = k, v of token t; out[t] = attention of query t over "
                "cache slots 0 .. position + t (the last `window` of them when window > 0; with a "
                "block, the last of its block and whole ones before it)",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
