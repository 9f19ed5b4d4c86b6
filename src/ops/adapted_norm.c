#include "ops/adapted_norm.h"

#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "first", .type = ATTR_INT},
    {.name = "scale", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 2));
    for (int i = 0; i < 3; i++)
        TRY(need_rank(c, i, 2));
    const struct shape *w = &c->in[0].shape, *a = &c->in[1].shape, *b = &c->in[2].shape;
    int64_t first = call_int(c, ADAPTED_NORM_FIRST);
    if (a->dim[1] != w->dim[1] || a->dim[0] != b->dim[1])
        return REJECT(c, "b a has %lld columns over rank %lld, a rank %lld, w %lld columns",
                      (long long)a->dim[1], (long long)b->dim[1], (long long)a->dim[0],
                      (long long)w->dim[1]);
    if (first < 0 || first > w->dim[0] - b->dim[0])
        return REJECT(c, "rows [%lld, +%lld) of a matrix of %lld", (long long)first,
                      (long long)b->dim[0], (long long)w->dim[0]);
    out_set(c, 0, c->in[0].dtype, shape_of(1, b->dim[0]));
    return OK;
}

static double flops(const struct op_call *c)
{
    const struct shape *a = &c->in[1].shape, *b = &c->in[2].shape;
    return 2.0 * (double)b->dim[0] * (double)a->dim[1] * (double)(a->dim[0] + 1);
}

static const struct op_sample samples[] = {
    {.text = "f32[5,7], f32[2,7], f32[5,2] {scale=2.0}"},
    {.text = "f32[40,33], f32[8,33], f32[16,8] {first=24, scale=0.5}"},
    {.text = "f32[3,1100], f32[4,1100], f32[2,4] {first=1}"},
    {.text = "bf16[16,64], bf16[4,64], bf16[16,4] {scale=2.0}", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[5,7], f32[2,6], f32[5,2]",           "f32[5,7], f32[2,7], f32[5,3]",
    "f32[5,7], f32[2,7], f32[5,2] {first=1}", "f32[5,7], f32[2,7], f32[2,2] {first=-1}",
    "f32[5,7], f64[2,7], f32[5,2]",           "f32[5,7], f32[7], f32[5,2]",
};

const struct op_def op_def_adapted_norm = {
    .name = "adapted_norm",
    .synopsis = "y[n] = |w[first + n] + scale sum_r b[n, r] a[r]|, which no gradient goes through",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .no_grad_inputs = 1u << 0 | 1u << 1 | 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
