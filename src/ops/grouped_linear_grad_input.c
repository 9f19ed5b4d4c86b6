#include "ops/expert_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_rank(c, 0, 2));
    TRY(need_rank(c, 1, 3));
    TRY(need_offsets(c, 2));
    const struct shape *dy = &c->in[0].shape, *w = &c->in[1].shape;
    if (dy->dim[1] != w->dim[1] || n_groups(c, 2) != w->dim[0])
        return REJECT(c, "dy has %lld columns for w's %lld, offsets %lld groups for w's %lld",
                      (long long)dy->dim[1], (long long)w->dim[1], (long long)n_groups(c, 2),
                      (long long)w->dim[0]);
    out_set(c, 0, c->in[0].dtype, shape_of(2, dy->dim[0], w->dim[2]));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[2];
}

static const struct op_sample samples[] = {
    {.text = "f32[7,4], f32[3,4,5], i32[4]"},
    {.text = "f32[33,37], f32[2,37,40], i32[3]"},
    {.text = "f32[150,24], f32[4,24,72], i32[5]"},
    {.text = "f32[5,2], f32[8,2,3], i32[9]"},
};
static const char *const rejects[] = {
    "f32[7,4], f32[3,5,4], i32[4]",
    "f32[7,4], f32[3,4,5], i32[3]",
    "f32[7,4], bf16[3,4,5], i32[4]",
    "f32[7,4], f32[3,4,5], i64[4]",
};

const struct op_def op_def_grouped_linear_grad_input = {
    .name = "grouped_linear_grad_input",
    .synopsis = "dx[r, k] = sum_n dy[r, n] w[e, n, k] for the rows r of each group e",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer,
    .no_grad = true,
    .offset_inputs = 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
