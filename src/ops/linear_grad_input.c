#include "ops/layer_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 1));
    TRY(need_rank(c, 1, 2));
    const struct shape *dy = &c->in[0].shape, *w = &c->in[1].shape;
    if (shape_last(dy) != w->dim[0])
        return REJECT(c, "dy has last axis %lld, w has %lld rows", (long long)shape_last(dy),
                      (long long)w->dim[0]);
    out_set(c, 0, c->in[0].dtype, shape_with_last(*dy, w->dim[1]));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[1].shape.dim[1];
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5,4]"},
    {.text = "f32[2,3,17], f32[17,9]"},
    {.text = "f32[33,37], f32[37,40]"},
    {.text = "f32[6], f32[6,1]"},
};
static const char *const rejects[] = {"f32[3,5], f32[4,5]", "f32[3,5], f32[5]",
                                      "f32[3,5], bf16[5,4]"};

const struct op_def op_def_linear_grad_input = {
    .name = "linear_grad_input",
    .synopsis = "dx[..., k] = sum_n dy[..., n] w[n, k]",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
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
