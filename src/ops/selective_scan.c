#include "ops/scan_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_scan(c, 0));
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dx = build(b, OP_selective_scan_grad,
                        IN(d_out[0], n->in[0], n->in[1], n->in[2], n->in[3], n->in[4]), NO_ATTRS);
    for (int i = 0; i < n->n_in; i++) {
        if (wants[i])
            d_in[i] = i == 0 ? dx : build_output(b, i);
    }
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    struct scan_dims d = scan_dims_of(c, 0);
    return scan_flops(&d);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,3], f32[2,5,3]+, f32[3,4], f32[2,5,4], f32[2,5,4]"},
    {.text = "f32[1,9,40], f32[1,9,40]+, f32[40,16], f32[1,9,16], f32[1,9,16]", .tolerance = 2e-4},
    {.text = "f32[3,1,2], f32[3,1,2]+, f32[2,1], f32[3,1,1], f32[3,1,1]"},
};
static const char *const rejects[] = {
    "f32[2,5,3], f32[2,5,2], f32[3,4], f32[2,5,4], f32[2,5,4]",
    "f32[2,5,3], f32[2,5,3], f32[2,4], f32[2,5,4], f32[2,5,4]",
    "f32[2,5,3], f32[2,5,3], f32[3,4], f32[2,5,3], f32[2,5,4]",
    "f32[2,5,3], f32[2,5,3], f32[3,4], f32[2,5,4], f32[2,4,4]",
    "f32[2,5,3], f32[2,5,3], f32[3,4], f32[2,5,4], bf16[2,5,4]",
};

const struct op_def op_def_selective_scan = {
    .name = "selective_scan",
    .synopsis = "h[t, d, n] = exp(step[t, d] a[d, n]) h[t - 1, d, n] + step[t, d] b[t, n] x[t, d]; "
                "y[t, d] = sum_n c[t, n] h[t, d, n]",
    .min_in = 5,
    .max_in = 5,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
