#include "ops/expert_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 2));
    TRY(need_rank(c, 1, 2));
    int64_t n = c->in[0].shape.dim[0], n_rows = c->in[1].shape.dim[0];
    struct shape rows = shape_of(2, n_rows, c->in[0].shape.dim[1]);
    TRY(need_shape(c, 1, &rows));
    TRY(need_permutation(c, 2, n_rows));
    if (n < 1 || n_rows < n || n_rows % n != 0)
        return REJECT(c, "%lld rows are no multiple of %lld tokens", (long long)n_rows,
                      (long long)n);
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(2, n, n_rows / n));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[1].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[6,5], i32[6], i32[6]"},
    {.text = "f32[7,33], f32[7,33], i32[7], i32[7]"},
    {.text = "f32[5,1030], f32[15,1030], i32[15], i32[15]"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[7,5], i32[7], i32[7]",
    "f32[3,5], f32[6,4], i32[6], i32[6]",
    "f32[3,5], f32[6,5], i32[6], i32[5]",
    "f32[3,5], bf16[6,5], i32[6], i32[6]",
};

const struct op_def op_def_combine_grad_weights = {
    .name = "combine_grad_weights",
    .synopsis = "dw[n, j] = sum over c of dy[n, c] x[place[n k + j], c]",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    .permutation_inputs = 1u << 2 | 1u << 3,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
