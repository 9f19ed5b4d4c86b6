#include "ops/expert_support.h"

static const struct attr_def attrs[] = {
    {"normalize", ATTR_BOOL, {.i = 0}, false},
    {"epsilon", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 1));
    TRY(need_rank(c, 1, 2));
    TRY(need_rank(c, 2, 2));
    TRY(need_dtype(c, 2, DTYPE_I32));
    struct shape ids = shape_of(2, c->in[1].shape.dim[0], c->in[2].shape.dim[1]);
    TRY(need_shape(c, 2, &ids));
    TRY(need_statistics(c, 0, 1, &ids));
    if (ids.dim[1] > c->in[1].shape.dim[1])
        return REJECT(c, "more ids than experts");
    out_like(c, 0, 1);
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    return c->in[1].shape.dim[1];
}

static const struct op_sample samples[] = {
    {.text = "f32[5,2], f32[5,4]+, i32[5,2]~4 {normalize=true}"},
    {.text = "f32[7,1], f32[7,8]+, i32[7,1]~8"},
    {.text = "f32[40,4], f32[40,16]+, i32[40,4]~16 {normalize=true, epsilon=1e-9}"},
};
static const char *const rejects[] = {
    "f32[5,2], f32[5,4], i32[5,3]~4",
    "f32[5,2], f32[5,4], f32[5,2]",
    "f32[5,5], f32[5,4], i32[5,5]~4",
    "bf16[5,2], bf16[5,4], i32[5,2]~4",
};

const struct op_def op_def_route_grad = {
    .name = "route_grad",
    .synopsis = "dp[n, e] = sum over j with ids[n, j] = e of dw[n, j], normalize: of (dw[n, j] - "
                "sum_i w[n, i] dw[n, i]) / (sum_i p[n, ids[n, i]] + epsilon)",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
