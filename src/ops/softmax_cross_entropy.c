#include "ops/layer_support.h"

static const struct attr_def attrs[] = {
    {.name = "label_smoothing", .type = ATTR_FLOAT},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 1));
    struct shape rows = shape_without_last(c->in[0].shape);
    TRY(need_dtype(c, 1, DTYPE_I32));
    TRY(need_shape(c, 1, &rows));
    if (!(call_float(c, 0) >= 0.0 && call_float(c, 0) < 1.0))
        return REJECT(c, "label_smoothing must be in [0, 1)");
    for (int i = 0; i < c->n_out; i++)
        out_set(c, i, dtype_accumulator(c->in[0].dtype), rows);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 2));
    if (wants[0])
        d_in[0] = build_with(b, OP_softmax_cross_entropy_grad,
                             IN(d_out[0], n->in[0], n->in[1], n->out[1]), n->attrs);
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return shape_last(&c->in[0].shape);
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[5,7], i32[5]~7"},
    {.text = "f32[2,3,33], i32[2,3]~-1:33"},
    {.text = "f32[9,11], i32[9]~-1:11 {label_smoothing=0.1}"},
    {.text = "f32[3,1300], i32[3]~1300"},
    {.text = "f32[4,1], i32[4]~1"},
};
static const char *const rejects[] = {
    "f32[5,7], i32[4]~7",
    "f32[5,7], f32[5]",
    "i32[5,7]~3, i32[5]~7",
    "f32[5,7], i32[5]~7 {label_smoothing=1}",
};

const struct op_def op_def_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .synopsis = "of each row x with label t: lse(x) - (1-e) x[t] - e avg(x), e = label_smoothing; "
                "lse(x); 1 where x[t] is the first largest, else 0. 0 for labels below 0",
    .min_in = 2,
    .max_in = 2,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
