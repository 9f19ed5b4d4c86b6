#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    QKV_ATTRS,
    {"inverse", ATTR_BOOL, {.i = 0}, false},
    {"scale", ATTR_FLOAT, {.f = 1.0}, false},
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(qkv_check(c, 0, &d));
    if (d.head_dim % 2 != 0)
        return REJECT(c, "head_dim %lld must be even", (long long)d.head_dim);
    struct shape tokens = shape_of(1, d.n_tokens);
    bool by_row = call_has(c, 2) && c->in[2].shape.rank == 2; /* of each row of tokens its own */
    TRY(need_dtype(c, 1, dtype_accumulator(c->in[0].dtype)));
    TRY(need_rank(c, 1, 1));
    int64_t n_pairs = c->in[1].shape.dim[0];
    if (n_pairs < 1 || n_pairs > d.head_dim / 2)
        return REJECT(c, "inv_freq has %lld pairs, a head %lld", (long long)n_pairs,
                      (long long)d.head_dim / 2);
    if (by_row)
        TRY(need_positions(c, 2, &d));
    if (call_has(c, 2) && !by_row) {
        TRY(need_dtype(c, 2, DTYPE_I32));
        TRY(need_shape(c, 2, &tokens));
    }
    out_like(c, 0, 0);
    return OK;
}

/* The transpose of a rotation is the rotation by the negative angle; the scale stays. */
static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_rotary, IN(d_out[0], n->in[1], node_input(n, 2)),
                        ATTRS({"heads", .i = n->attrs[QKV_HEADS].i},
                              {"kv_heads", .i = n->attrs[QKV_KV_HEADS].i},
                              {"head_dim", .i = n->attrs[QKV_HEAD_DIM].i},
                              {"inverse", .i = !n->attrs[ROTARY_INVERSE].i},
                              {"scale", .f = n->attrs[ROTARY_SCALE].f}));
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 3.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[2,3,24], f32[2] {heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[1,5,144], f32[9], i32[5]~900 {heads=4, kv_heads=2, scale=1.5}"},
    {.text = "f32[2,7,128], f32[16], i32[7]~70 {heads=2, kv_heads=1, inverse=true}"},
    {.text = "bf16[2,3,24], f32[2] {heads=2, kv_heads=2, head_dim=4}", .tolerance = 1e-2},
    {.text = "f16[2,3,96], f32[16], i32[3]~20 {heads=1}", .tolerance = 1e-2},
    {.text = "f32[2,5,128], f32[12], i32[5]~70 {heads=2, kv_heads=1, scale=1.5}"},
    {.text = "f32[1,3,40], f32[3] {heads=2, kv_heads=1, inverse=true}"},
    {.text = "bf16[2,3,128], f32[8] {heads=2, kv_heads=1}", .tolerance = 1e-2},
    {.text = "f32[2,5,128], f32[16], i32[2,5]~70 {heads=2, kv_heads=1, scale=1.5}"},
    {.text = "f32[3,7,40], f32[3], i32[3,7]~900 {heads=2, kv_heads=1, inverse=true}"},
};
static const char *const rejects[] = {"f32[2,3,18], f32[1] {heads=2, head_dim=3}",
                                      "f32[2,3,24], f32[4] {heads=2}",
                                      "f32[2,3,24], f32[0] {heads=2}",
                                      "f32[2,3,24], i32[2]~4 {heads=2}",
                                      "f32[2,3,24], f32[2], i32[2]~4 {heads=2}",
                                      "f32[2,3,24], f32[2], f32[3] {heads=2}",
                                      "f32[2,3,24], f32[2], i32[3,2]~4 {heads=2}"};

const struct op_def op_def_rotary = {
    .name = "rotary",
    .synopsis = "halves (a, b) of each query and key head's first channels, two for each inv_freq "
                "-> (a cos - b sin, b cos + a sin) scale, angle = position inv_freq (negated when "
                "inverse); other channels and values copied",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1 | 1u << 2,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
