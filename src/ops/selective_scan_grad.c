#include "ops/scan_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_scan(c, 1));
    TRY(need_shape(c, 0, &c->in[1].shape));
    for (int i = 0; i < 5; i++)
        out_like(c, i, i + 1);
    return OK;
}

static double flops(const struct op_call *c)
{
    struct scan_dims d = scan_dims_of(c, 1);
    return 3.0 * scan_flops(&d);
}

static const struct op_sample samples[] = {
    {.text = "f32[2,5,3], f32[2,5,3], f32[2,5,3]+, f32[3,4], f32[2,5,4], f32[2,5,4]",
     .tolerance = 2e-4},
    {.text = "f32[2,4,40], f32[2,4,40], f32[2,4,40]+, f32[40,16], f32[2,4,16], f32[2,4,16]",
     .tolerance = 1e-3},
};
static const char *const rejects[] = {
    "f32[2,5,2], f32[2,5,3], f32[2,5,3], f32[3,4], f32[2,5,4], f32[2,5,4]",
    "f32[2,5,3], f32[2,5,3], f32[2,5,3], f32[3,4], f32[2,5,4], f32[2,5,3]",
};

const struct op_def op_def_selective_scan_grad = {
    .name = "selective_scan_grad",
    .synopsis = "gradients of selective_scan by x, step, a, b and c from that of y",
    .min_in = 6,
    .max_in = 6,
    .n_out = 5,
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
