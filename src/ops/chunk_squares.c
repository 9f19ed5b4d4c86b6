/* chunk_squares.c: the first half of a sum of squares, for a gradient that may never be in one
 * place: a number for each chunk, whatever the slices it comes in. */
#include "ops/op_support.h"
#include "ops/squares_chunk.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    int64_t n = shape_elems(&c->in[0].shape);
    out_set(c, 0, dtype_accumulator(c->in[0].dtype),
            shape_of(1, (n + SQUARES_CHUNK - 1) / SQUARES_CHUNK));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,2048]"},
    {.text = "bf16[5,4099]"},
    {.text = "f16[40961]"},
};
static const char *const rejects[] = {"i32[3]", "_"};

const struct op_def op_def_chunk_squares = {
    .name = "chunk_squares",
    .synopsis = "y[i] = sum of g^2 over chunk i of its elements",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .granule = SQUARES_CHUNK,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
