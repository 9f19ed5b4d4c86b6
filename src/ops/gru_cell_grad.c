#include "ops/cell_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_gates(c, 0, 2, GRU_GATES));
    TRY(need_gates(c, 1, 2, GRU_GATES));
    TRY(need_like(c, 3, 2));
    for (int i = 0; i < 3; i++)
        out_like(c, i, i);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 20.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,15], f32[3,15], f32[3,5], f32[3,5]"},
    {.text = "f32[1,3150], f32[1,3150], f32[1,1050], f32[1,1050]"},
};
static const char *const rejects[] = {
    "f32[3,15], f32[3,15], f32[3,5], f32[3,4]",
    "f32[3,15], f32[3,12], f32[3,5], f32[3,5]",
};

const struct op_def op_def_gru_cell_grad = {
    .name = "gru_cell_grad",
    .synopsis = "gradients of gru_cell by x, z and h from that of h'",
    .min_in = 4,
    .max_in = 4,
    .n_out = 3,
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
