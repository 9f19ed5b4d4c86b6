#include "ops/expert_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    TRY(need_float(c, 1));
    TRY(need_rank(c, 1, 2));
    if (c->in[1].dtype != c->in[0].dtype && c->in[1].dtype != DTYPE_F32)
        return REJECT(c, "w must be %s or f32, not %s", dtype_name(c->in[0].dtype),
                      dtype_name(c->in[1].dtype));
    const struct shape *x = &c->in[0].shape, *w = &c->in[1].shape;
    if (x->dim[1] != w->dim[1])
        return REJECT(c, "x has %lld columns, w has %lld", (long long)x->dim[1],
                      (long long)w->dim[1]);
    if (call_has(c, 2))
        TRY(need_weight(c, 2, 0, w->dim[0]));
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(2, x->dim[0], w->dim[0]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dx = build(b, OP_router_grad, IN(n->in[0], d_out[0], n->in[1]), NO_ATTRS);
    if (wants[0])
        d_in[0] = dx;
    if (wants[1])
        d_in[1] = build_output(b, 1);
    if (n->n_in > 2 && wants[2])
        d_in[2] = build_output(b, 2);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[0];
}

static const struct op_sample samples[] = {
    {.text = "f32[5,7], f32[3,7]"},
    {.text = "f32[33,40], f32[8,40], f32[8]"},
    {.text = "f32[1,1], f32[1,1], f32[1]"},
};
static const char *const rejects[] = {
    "f32[5,7], f32[3,6]",         "f32[5,7], f32[3,7], f32[7]", "f32[5,7], bf16[3,7]",
    "f32[2,5,7], f32[3,7]",       "f32[5,7], i32[3,7]~2",       "bf16[5,7], f16[3,7]",
    "f32[5,7], f32[3,7], f64[3]",
};

const struct op_def op_def_router = {
    .name = "router",
    .synopsis = "z[n, e] = sum_k x[n, k] w[e, k] + bias[e], in the accumulator's dtype",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .f32_inputs = 1u << 1 | 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
