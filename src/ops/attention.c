#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    ATTENTION_ATTRS,
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(qkv_check(c, 0, &d));
    if (call_int(c, ATTENTION_WINDOW) < 0)
        return REJECT(c, "window must not be negative (0: none)");
    if (call_int(c, ATTENTION_WINDOW) > 0 && !call_bool(c, ATTENTION_CAUSAL))
        return REJECT(c, "a window needs causal attention");
    out_set(c, 0, c->in[0].dtype, shape_of(3, d.batch, d.n_tokens, d.heads * d.head_dim));
    out_set(c, 1, dtype_accumulator(c->in[0].dtype), shape_of(3, d.batch, d.heads, d.n_tokens));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 1));
    if (wants[0])
        d_in[0] = build_with(b, OP_attention_grad, IN(d_out[0], n->in[0], n->out[0], n->out[1]),
                             n->attrs);
    return builder_status(b);
}

/* Multiply-adds of scores and of the weighted sum, over the pairs that are not masked. */
static double flops(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    double t = (double)d.n_tokens, w = (double)call_int(c, ATTENTION_WINDOW);
    double pairs = t * t;
    if (call_bool(c, ATTENTION_CAUSAL))
        pairs = w > 0.0 && w < t ? w * (w + 1.0) / 2.0 + (t - w) * w : t * (t + 1.0) / 2.0;
    return 4.0 * pairs * (double)(d.batch * d.heads * d.head_dim);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,24] {heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[1,7,32] {heads=4, kv_heads=2, head_dim=4, window=3}"},
    {.text = "f32[2,1,12] {heads=1}"},
    {.text = "f32[1,9,15] {heads=1, causal=false, scale=0.7}"},
    {.text = "f32[1,67,36] {heads=2, kv_heads=1, head_dim=9}"},
};
static const char *const rejects[] = {"f32[2,5,24] {heads=2, kv_heads=1, head_dim=4}",
                                      "f32[2,5,24] {heads=0}",
                                      "f32[5,24] {heads=2}",
                                      "f32[2,5,24] {heads=2, window=-1}",
                                      "f32[2,5,24] {heads=2, causal=false, window=2}",
                                      "f32[2,5,25] {heads=2}",
                                      "i32[2,5,24]~3 {heads=2}"};

const struct op_def op_def_attention = {
    .name = "attention",
    .synopsis = "out[i] = sum_j softmax_j(scale q[i] k[j]) v[j] per head, j <= i when causal and "
                "j > i - window when window > 0; lse[i] = log sum_j exp(scale q[i] k[j])",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
