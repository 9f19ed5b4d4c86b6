#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(1, (int64_t)1));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,1030]"},
    {.text = "f32[]"},
    {.text = "bf16[37]"},
};
static const char *const rejects[] = {
    "i32[3]",
};

const struct op_def op_def_sum_squares = {
    .name = "sum_squares",
    .synopsis = "y = sum of g^2 over all elements",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
