#include "ops/cell_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_gates(c, 0, 2, GRU_GATES));
    TRY(need_gates(c, 1, 2, GRU_GATES));
    out_like(c, 0, 2);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id first =
        build(b, OP_gru_cell_grad, IN(n->in[0], n->in[1], n->in[2], d_out[0]), NO_ATTRS);
    for (int i = 0; i < 3; i++) {
        if (wants[i])
            d_in[i] = i == 0 ? first : build_output(b, i);
    }
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 10.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,15], f32[3,15], f32[3,5]"},
    {.text = "f32[2,3], f32[2,3], f32[2,1]"},
    {.text = "f32[1,3150], f32[1,3150], f32[1,1050]"},
};
static const char *const rejects[] = {
    "f32[3,15], f32[3,15], f32[3,4]",
    "f32[3,15], f32[3,12], f32[3,5]",
    "f32[3,15], f32[3,15], bf16[3,5]",
};

const struct op_def op_def_gru_cell = {
    .name = "gru_cell",
    .synopsis = "x and z are r | u | n; r = s(x_r + z_r), u = s(x_u + z_u), n = tanh(x_n + r z_n); "
                "h' = (1 - u) n + u h",
    .min_in = 3,
    .max_in = 3,
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
