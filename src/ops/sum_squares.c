/* sum_squares.c: over all elements of all inputs. Several tensors in one call cost one launch; what
 * belongs together is the graph's choice, so the order of the sum is the same under every plan. */
#include "ops/op_support.h"

static enum status infer(const struct op_call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        TRY(need_float(c, i));
        if (dtype_accumulator(c->in[i].dtype) != dtype_accumulator(c->in[0].dtype))
            return REJECT(c, "input %d is %s beside %s: f64 stands alone", i,
                          dtype_name(c->in[i].dtype), dtype_name(c->in[0].dtype));
    }
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(1, (int64_t)1));
    return OK;
}

static double flops(const struct op_call *c)
{
    double n = 0;
    for (int i = 0; i < c->n_in; i++)
        n += 2.0 * (double)shape_elems(&c->in[i].shape);
    return n;
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[2,1030]"},
    {.text = "f32[]"},
    {.text = "bf16[37]"},
    {.text = "f32[3,5], f32[7], f32[]"},
    {.text = "bf16[3,50], f32[70000], f16[1], bf16[33001]"},
};
static const char *const rejects[] = {
    "i32[3]",
    "f32[3], i32[3]",
    "f32[3], f64[3]",
    "f32[3], _",
};

const struct op_def op_def_sum_squares = {
    .name = "sum_squares",
    .synopsis = "y = sum of g^2 over all elements of all inputs",
    .min_in = 1,
    .max_in = -1,
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
