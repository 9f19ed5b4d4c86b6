/* adamw_8bit_product.c: adamw_8bit by a gradient that is the product of a few rows. Inputs: param,
 * dy, codes of m, their scales, codes of v, their scales, lr, step (counts from 1), scale, x.
 *
 * The gradient is linear_grad_weight(dy, x), each element rounded to `dtype` as if it were stored:
 * it is made where it is used, and never in memory. */
#include "ops/layer_support.h"
#include "ops/update_support.h"

/* The seed comes last, as in every update. */
static const struct attr_def attrs[] = {
    {.name = "beta1", .type = ATTR_FLOAT, .value = {.f = 0.9}},
    {.name = "beta2", .type = ATTR_FLOAT, .value = {.f = 0.999}},
    {.name = "epsilon", .type = ATTR_FLOAT, .value = {.f = 1e-8}},
    {.name = "weight_decay", .type = ATTR_FLOAT, .value = {.f = 0.01}},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}},
    {.name = "seed", .type = ATTR_INT},
};

static enum status need_factors(const struct op_call *c)
{
    enum dtype d;
    TRY(need_float(c, 1));
    TRY(need_dtype(c, CODED_FACTOR, c->in[1].dtype));
    TRY(need_min_rank(c, 1, 1));
    const struct shape *dy = &c->in[1].shape, *x = &c->in[CODED_FACTOR].shape;
    struct shape like_x = shape_with_last(*dy, shape_last(x));
    TRY(need_shape(c, CODED_FACTOR, &like_x));
    struct shape weight = shape_of(2, shape_last(dy), shape_last(x));
    TRY(need_shape(c, 0, &weight));
    return grad_dtype(c, CODED_FACTOR_DTYPE, 1, &d);
}

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_factors(c));
    TRY(need_coded(c, CODED_M));
    TRY(need_coded(c, CODED_V));
    TRY(need_adamw_rule(c, CODED_LR));
    out_adamw_coded(c);
    return OK;
}

static double flops(const struct op_call *c)
{
    double n_rows = (double)shape_rows(&c->in[1].shape);
    return (24.0 + 2.0 * n_rows) * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2},
                                            {ALIAS_UPDATE, 2, 3}, {ALIAS_UPDATE, 3, 4},
                                            {ALIAS_UPDATE, 4, 5}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[2,3], u8[3,5]~256, f32[1]+, u8[3,5]~256, f32[1]+, f32[1]=0.01, "
             "i32[1]=3, f32[1]+, f32[2,5]"},
    {.text = "f32[7,149], f32[1,7], u8[7,149]~256, f32[5]+, u8[7,149]~256, f32[5]+, "
             "f32[1]=0.01, i32[1]=1, f32[1]+, f32[1,149] {beta1=0.8, beta2=0.95, epsilon=0.001, "
             "weight_decay=0.1}"},
    {.text = "bf16[9,264], bf16[2,9], u8[9,264]~256, f32[10]+, u8[9,264]~256, f32[10]+, "
             "f32[1]=0.01, i32[1]=7, f32[1]=0.5, bf16[2,264]"},
    {.text = "bf16[40,520], bf16[3,40], u8[40,520]~256, f32[82]+, u8[40,520]~256, f32[82]+, "
             "f32[1]=0.01, i32[1]=100, f32[1]=1, bf16[3,520] {seed=7}"},
    {.text = "bf16[33,31], bf16[2,2,33], u8[33,31]~256, f32[4]+, u8[33,31]~256, f32[4]+, "
             "f32[1]=0.01, i32[1]=4, f32[1]=1, bf16[2,2,31] {dtype=f32, seed=3}"},
    /* Rows enough for several strides of a GPU's kernel, ends of rows inside blocks of codes. */
    {.text = "bf16[70,4104], bf16[2,70], u8[70,4104]~256, f32[1123]+, u8[70,4104]~256, f32[1123]+, "
             "f32[1]=0.01, i32[1]=3, f32[1]=1, bf16[2,4104] {seed=5}"},
    {.text = "bf16[300,256], bf16[4,300], u8[300,256]~256, f32[300]+, u8[300,256]~256, f32[300]+, "
             "f32[1]=0.01, i32[1]=4, f32[1]=1, bf16[4,256] {dtype=f32, seed=5}"},
    {.text = "f32[70,520], f32[3,70], u8[70,520]~256, f32[143]+, u8[70,520]~256, f32[143]+, "
             "f32[1]=0.01, i32[1]=5, f32[1]=1, f32[3,520] {epsilon=0.001}"},
    {.text = "bf16[9,264], bf16[5,9], u8[9,264]~256, f32[10]+, u8[9,264]~256, f32[10]+, "
             "f32[1]=0.01, i32[1]=6, f32[1]=1, bf16[5,264] {seed=9}"},
    {.text = "f32[5,8], f32[5], u8[5,8]~256, f32[1]+, u8[5,8]~256, f32[1]+, f32[1]=0.01, "
             "i32[1]=2, f32[1]=0, f32[8]"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[2,4], u8[3,5], f32[1], u8[3,5], f32[1], f32[1], i32[1], f32[1], f32[2,5]",
    "f32[3,5], f32[2,3], u8[3,5], f32[1], u8[3,5], f32[1], f32[1], i32[1], f32[1], f32[3,5]",
    "f32[3,5], f32[2,3], u8[3,5], f32[1], u8[3,5], f32[1], f32[1], i32[1], f32[1], bf16[2,5]",
    "f32[3,5], f32[2,3], u8[3,5], f32[2], u8[3,5], f32[1], f32[1], i32[1], f32[1], f32[2,5]",
    "f32[15], f32[2,3], u8[15], f32[1], u8[15], f32[1], f32[1], i32[1], f32[1], f32[2,5]",
    "f32[3,1], f32[3], u8[3,1], f32[1], u8[3,1], f32[1], f32[1], i32[1], f32[1], f32[1] {beta1=1}",
};

const struct op_def op_def_adamw_8bit_product = {
    .name = "adamw_8bit_product",
    .synopsis = "adamw_8bit with grad[n, k] = sum over rows of dy[..., n] x[..., k]",
    .min_in = 10,
    .max_in = 10,
    .n_out = 5,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .coded_outputs = 1u << 1 | 1u << 3,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .granule = DYNAMIC_BLOCK,
    .whole_inputs = 7u << CODED_LR | 1u << 1 | 1u << CODED_FACTOR,
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
