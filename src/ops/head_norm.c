#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    QKV_ATTRS,
    {"epsilon", ATTR_FLOAT, {.f = 1e-6}, false},
    {"offset", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(qkv_check(c, 0, &d));
    TRY(need_weight(c, 1, 0, d.head_dim));
    TRY(need_weight(c, 2, 0, d.head_dim));
    if (!(call_float(c, HEAD_NORM_EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    out_like(c, 0, 0);
    out_set(c, 1, dtype_accumulator(c->in[0].dtype),
            shape_of(3, d.batch, d.n_tokens, d.heads + d.kv_heads));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 1));
    value_id dx = build(b, OP_head_norm_grad, IN(d_out[0], n->in[0], n->in[1], n->in[2], n->out[1]),
                        ATTRS({"heads", .i = n->attrs[QKV_HEADS].i},
                              {"kv_heads", .i = n->attrs[QKV_KV_HEADS].i},
                              {"head_dim", .i = n->attrs[QKV_HEAD_DIM].i},
                              {"offset", .f = n->attrs[HEAD_NORM_OFFSET].f}));
    if (wants[0])
        d_in[0] = dx;
    if (wants[1])
        d_in[1] = build_output(b, 1);
    if (wants[2])
        d_in[2] = build_output(b, 2);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[2,3,24], f32[4], f32[4] {heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[1,5,136], f32[17], f32[17] {heads=4, kv_heads=2, head_dim=17, epsilon=0.01}"},
    {.text = "f32[2,1,60], f32[20], f32[20] {heads=1}"},
    {.text = "bf16[2,3,128], f32[32], f32[32] {heads=2, kv_heads=1}", .tolerance = 1e-2},
    {.text = "f32[2,3,32], f32[8], f32[8] {heads=2, kv_heads=1, offset=1.0}"},
};
static const char *const rejects[] = {
    "f32[2,3,24], f32[4], f32[4] {heads=2, kv_heads=1, head_dim=4}",
    "f32[2,3,24], f32[5], f32[4] {heads=2, kv_heads=2, head_dim=4}",
    "f32[2,3,28], f32[4], f32[4] {heads=3, kv_heads=2, head_dim=4}",
    "f32[3,24], f32[4], f32[4] {heads=2}", "f32[2,3,24], f32[4], f32[4] {heads=0}"};

const struct op_def op_def_head_norm = {
    .name = "head_norm",
    .synopsis = "each query head q rstd (wq + offset), each key head k rstd (wk + offset), "
                "values copied; rstd = 1 / sqrt(avg over the head of x^2 + epsilon)",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .f32_inputs = 1u << 1 | 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
