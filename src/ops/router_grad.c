#include "ops/expert_support.h"

enum { DTYPE };

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    TRY(need_float(c, 2));
    TRY(need_rank(c, 2, 2));
    if (c->in[2].dtype != c->in[0].dtype && c->in[2].dtype != DTYPE_F32)
        return REJECT(c, "w must be %s or f32, not %s", dtype_name(c->in[0].dtype),
                      dtype_name(c->in[2].dtype));
    struct shape dz = shape_of(2, c->in[0].shape.dim[0], c->in[2].shape.dim[0]);
    TRY(need_statistics(c, 1, 0, &dz));
    if (c->in[0].shape.dim[1] != c->in[2].shape.dim[1])
        return REJECT(c, "x and w differ in columns");
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 2, &d));
    out_like(c, 0, 0);
    out_set(c, 1, d, c->in[2].shape);
    out_set(c, 2, d, shape_of(1, dz.dim[1]));
    return OK;
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape) * (double)c->in[2].shape.dim[0];
}

static const struct op_sample samples[] = {
    {.text = "f32[5,7], f32[5,3], f32[3,7]"},
    {.text = "f32[33,40], f32[33,8], f32[8,40]"},
    {.text = "bf16[19,6], f32[19,4], f32[4,6] {dtype=f32}"},
    {.text = "f32[1,1], f32[1,1], f32[1,1]"},
};
static const char *const rejects[] = {
    "f32[5,7], f32[5,3], f32[3,6]",   "f32[4,7], f32[5,3], f32[3,7]", "f32[5,7], f32[5,3]",
    "bf16[5,7], bf16[5,3], f32[3,7]", "f32[5,7], f32[5,3], f32[4,7]",
};

const struct op_def op_def_router_grad = {
    .name = "router_grad",
    .synopsis = "dx = dz w; dw = dz^T x; dbias = sum over rows of dz",
    .min_in = 3,
    .max_in = 3,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .f32_inputs = 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
