/* product_squares.c: the sum of squares of a weight's gradient, from what it is the product of.
 *
 *     |sum_i dy_i x_i^T|^2 = sum over rows i, j of (dy_i . dy_j) (x_i . x_j)
 *
 * For a few rows that is a few products of vectors, where the gradient is a matrix that may never
 * be in one place. */
#include "ops/layer_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_min_rank(c, 0, 1));
    struct shape like_x = shape_with_last(c->in[0].shape, shape_last(&c->in[1].shape));
    TRY(need_shape(c, 1, &like_x));
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(1, (int64_t)1));
    return OK;
}

static double flops(const struct op_call *c)
{
    double n_rows = (double)shape_rows(&c->in[0].shape);
    return n_rows * (double)(shape_elems(&c->in[0].shape) + shape_elems(&c->in[1].shape));
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,4]"},     {.text = "f32[2,3,17], f32[2,3,9]"},
    {.text = "f32[6], f32[4]"},         {.text = "bf16[2,4099], bf16[2,601]"},
    {.text = "f16[7,300], f16[7,515]"},
};
static const char *const rejects[] = {"f32[3,5], f32[4,5]", "f32[2,3,5], f32[6,4]",
                                      "f32[3,5], f16[3,4]", "i32[3,5], i32[3,4]", "f32[3,5], _"};

const struct op_def op_def_product_squares = {
    .name = "product_squares",
    .synopsis = "y[0] = sum over n, k of (sum over rows of dy[..., n] x[..., k])^2",
    .min_in = 2,
    .max_in = 2,
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
