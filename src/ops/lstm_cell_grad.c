#include "ops/cell_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_gates(c, 0, 1, LSTM_GATES));
    TRY(need_like(c, 2, 1));
    TRY(need_like(c, 3, 1));
    out_like(c, 0, 0);
    out_like(c, 1, 1);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 20.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,20], f32[3,5], f32[3,5], f32[3,5]"},
    {.text = "f32[3,20], f32[3,5], f32[3,5]"},
    {.text = "f32[3,20], f32[3,5], _, f32[3,5]"},
    {.text = "f32[1,4200], f32[1,1050], f32[1,1050], f32[1,1050]"},
};
static const char *const rejects[] = {
    "f32[3,20], f32[3,4], f32[3,5]",
    "f32[3,20], f32[3,5], f32[3,4]",
    "f32[3,20], f32[3,5], f32[3,5], bf16[3,5]",
};

const struct op_def op_def_lstm_cell_grad = {
    .name = "lstm_cell_grad",
    .synopsis = "gradients of lstm_cell by its gates and c, from those of h and c'; one that is "
                "not given is 0",
    .min_in = 2,
    .max_in = 4,
    .n_out = 2,
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
