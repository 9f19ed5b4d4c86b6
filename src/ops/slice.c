#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "axis", .type = ATTR_INT, .required = true},
    {.name = "start", .type = ATTR_INT},
    {.name = "length", .type = ATTR_INT, .required = true},
};

static enum status infer(const struct op_call *c)
{
    struct shape s = c->in[0].shape;
    int64_t axis = call_int(c, 0), start = call_int(c, 1), length = call_int(c, 2);
    if (!call_has(c, 0))
        return REJECT(c, "x is absent");
    if (axis < 0 || axis >= s.rank)
        return REJECT(c, "axis %lld of a tensor of rank %d", (long long)axis, s.rank);
    if (start < 0 || length < 1 || start > s.dim[axis] - length)
        return REJECT(c, "[%lld, +%lld) leaves an axis of %lld", (long long)start,
                      (long long)length, (long long)s.dim[axis]);
    s.dim[axis] = length;
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    int64_t axis = n->attrs[0].i, start = n->attrs[1].i;
    int64_t size = build_shape(b, n->in[0])->dim[axis];
    if (wants[0])
        d_in[0] = build(b, OP_slice_grad, IN(d_out[0]),
                        ATTRS({"axis", .i = axis}, {"start", .i = start}, {"size", .i = size}));
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {axis=1, start=1, length=3}"},
    {.text = "f32[4,3,2] {axis=0, start=3, length=1}"},
    {.text = "f32[2,19,3] {axis=1, start=0, length=17}"},
    {.text = "f32[6] {axis=0, length=6}"},
    {.text = "i32[2,9]~50 {axis=1, start=2, length=7}"},
};
static const char *const rejects[] = {
    "f32[3,5] {axis=2, length=1}",          "f32[3,5] {axis=-1, length=1}",
    "f32[3,5] {axis=1, start=3, length=3}", "f32[3,5] {axis=1, start=-1, length=3}",
    "f32[3,5] {axis=1, length=0}",
};

const struct op_def op_def_slice = {
    .name = "slice",
    .synopsis = "y = x[.., start : start + length, ..] along axis",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
