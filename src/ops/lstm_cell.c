#include "ops/cell_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_gates(c, 0, 1, LSTM_GATES));
    out_like(c, 0, 1);
    out_like(c, 1, 1);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    const value_id in[] = {n->in[0], n->in[1], d_out[0], d_out[1]};
    value_id d_gates = build(b, OP_lstm_cell_grad, in, d_out[1] == VALUE_NONE ? 3 : 4, NO_ATTRS);
    if (wants[0])
        d_in[0] = d_gates;
    if (wants[1])
        d_in[1] = build_output(b, 1);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 10.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,20], f32[3,5]"},
    {.text = "f32[2,4], f32[2,1]"},
    {.text = "f32[1,4200], f32[1,1050]"},
};
static const char *const rejects[] = {
    "f32[3,20], f32[3,4]",
    "f32[3,20], f32[2,5]",
    "f32[3,20], bf16[3,5]",
    "f32[20], f32[5]",
};

const struct op_def op_def_lstm_cell = {
    .name = "lstm_cell",
    .synopsis = "gates are i | f | g | o; c' = s(f) c + s(i) tanh(g); h = s(o) tanh(c'), s the "
                "sigmoid; gives h, c'",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
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
