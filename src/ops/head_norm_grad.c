#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    QKV_ATTRS,
    {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false},
    {"offset", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    struct qkv_dims d;
    TRY(qkv_check(c, 0, &d));
    TRY(need_same_float(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    TRY(need_weight(c, 2, 0, d.head_dim));
    TRY(need_weight(c, 3, 0, d.head_dim));
    struct shape rstd = shape_of(3, d.batch, d.n_tokens, d.heads + d.kv_heads);
    TRY(need_statistics(c, 4, 0, &rstd));
    enum dtype dtype;
    TRY(grad_dtype(c, HEAD_NORM_GRAD_DTYPE, 0, &dtype));
    out_like(c, 0, 0);
    out_set(c, 1, dtype, shape_of(1, d.head_dim));
    out_set(c, 2, dtype, shape_of(1, d.head_dim));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 9.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_MAY, 0, 0},
    {ALIAS_MAY, 0, 1},
    {.kind = ALIAS_NONE},
};

static const struct op_sample samples[] = {
    {.text = "f32[2,3,24], f32[2,3,24], f32[4], f32[4], f32[2,3,4]+ "
             "{heads=2, kv_heads=2, head_dim=4}"},
    {.text = "f32[1,5,136], f32[1,5,136], f32[17], f32[17], f32[1,5,6]+ {heads=4, kv_heads=2}"},
    {.text = "bf16[2,3,128], bf16[2,3,128], f32[32], f32[32], f32[2,3,3]+ "
             "{heads=2, kv_heads=1, dtype=f32}",
     .tolerance = 1e-2},
    {.text = "f32[2,3,32], f32[2,3,32], f32[8], f32[8], f32[2,3,3]+ "
             "{heads=2, kv_heads=1, offset=1.0}"},
};
static const char *const rejects[] = {
    "f32[2,3,24], f32[2,3,24], f32[4], f32[4], f32[2,3,6] {heads=2}",
    "f32[2,3,24], f32[2,3,12], f32[4], f32[4], f32[2,3,4] {heads=2}",
    "f32[2,3,24], f32[2,3,24], f32[4], f32[3], f32[2,3,4] {heads=2}"};

const struct op_def op_def_head_norm_grad = {
    .name = "head_norm_grad",
    .synopsis =
        "rms_norm_grad of each query head with wq + offset and each key head with wk + offset; "
        "dv copied",
    .min_in = 5,
    .max_in = 5,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << 2 | 1u << 3,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
