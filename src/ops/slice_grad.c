#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "axis", .type = ATTR_INT, .required = true},
    {.name = "start", .type = ATTR_INT},
    {.name = "size", .type = ATTR_INT, .required = true},
};

static enum status infer(const struct op_call *c)
{
    struct shape s = c->in[0].shape;
    int64_t axis = call_int(c, 0), start = call_int(c, 1), size = call_int(c, 2);
    TRY(need_float(c, 0));
    if (axis < 0 || axis >= s.rank)
        return REJECT(c, "axis %lld of a tensor of rank %d", (long long)axis, s.rank);
    if (start < 0 || size < s.dim[axis] || start > size - s.dim[axis])
        return REJECT(c, "[%lld, +%lld) leaves an axis of %lld", (long long)start,
                      (long long)s.dim[axis], (long long)size);
    s.dim[axis] = size;
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    int64_t axis = n->attrs[0].i;
    (void)wants;
    d_in[0] = build(b, OP_slice, IN(d_out[0]),
                    ATTRS({"axis", .i = axis}, {"start", .i = n->attrs[1].i},
                          {"length", .i = build_shape(b, n->in[0])->dim[axis]}));
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,3] {axis=1, start=1, size=5}"},
    {.text = "f32[1,3,2] {axis=0, start=3, size=4}"},
    {.text = "f32[2,17,3] {axis=1, size=19}"},
    {.text = "f32[6] {axis=0, size=6}"},
};
static const char *const rejects[] = {
    "f32[3,3] {axis=2, size=9}",
    "f32[3,3] {axis=1, start=3, size=5}",
    "f32[3,3] {axis=1, start=-1, size=5}",
    "i32[3,3] {axis=1, size=5}",
};

const struct op_def op_def_slice_grad = {
    .name = "slice_grad",
    .synopsis = "dx = 0 of size `size` along axis, with dy at [start, ..)",
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
