#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    struct shape s = c->in[0].shape;
    if (s.rank < 1 || s.dim[s.rank - 1] % 2 != 0)
        return REJECT(c, "x's last axis must be even: gate, then up");
    s.dim[s.rank - 1] /= 2;
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 6.0 * (double)shape_elems(&c->out[0].shape);
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_silu_gate_grad, IN(d_out[0], n->in[0]), NO_ATTRS);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,10]"},
    {.text = "f32[2,3,34]"},
    {.text = "f32[1,2100]"},
    {.text = "f32[2]"},
};
static const char *const rejects[] = {
    "f32[3,5]",
    "f32[]",
    "i32[4]",
};

const struct op_def op_def_silu_gate = {
    .name = "silu_gate",
    .synopsis = "y = silu(g) u, where the last axis of x is [g, u]",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
