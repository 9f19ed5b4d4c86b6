#include "ops/reduce_axes.h"

static const struct attr_def attrs[] = {
    {.name = "axis", .type = ATTR_INT, .value = {.i = -1}},
};

static enum status infer(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    int64_t axis = call_int(c, 0) == -1 ? x->rank - 1 : call_int(c, 0);
    TRY(need_float(c, 0));
    if (axis < 0 || axis >= x->rank)
        return REJECT(c, "axis %lld of a tensor of rank %d", (long long)axis, x->rank);
    out_set(c, 0, c->in[0].dtype, reduce_shape(x, 1u << axis, false));
    return OK;
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build_with(b, OP_max_grad, IN(d_out[0], n->in[0], n->out[0]), n->attrs);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[3,5] {axis=0}"},
    {.text = "f32[2,3,17] {axis=1}"},
    {.text = "f32[2,1300]"},
    {.text = "f32[7]"},
};
static const char *const rejects[] = {
    "f32[]",
    "f32[3] {axis=1}",
    "f32[3] {axis=-2}",
    "i32[3]",
};

const struct op_def op_def_max = {
    .name = "max",
    .synopsis = "y = max of x along axis (-1: the last), which goes away",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
