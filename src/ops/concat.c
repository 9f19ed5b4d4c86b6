#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "axis", .type = ATTR_INT, .required = true},
};

static enum status infer(const struct op_call *c)
{
    struct shape s = c->in[0].shape;
    int64_t axis = call_int(c, 0);
    if (!call_has(c, 0))
        return REJECT(c, "input 0 is absent");
    if (axis < 0 || axis >= s.rank)
        return REJECT(c, "axis %lld of a tensor of rank %d", (long long)axis, s.rank);
    for (int i = 1; i < c->n_in; i++) {
        if (!call_has(c, i))
            return REJECT(c, "input %d is absent", i);
        TRY(need_dtype(c, i, c->in[0].dtype));
        TRY(need_rank(c, i, s.rank));
        struct shape want = c->in[0].shape;
        want.dim[axis] = c->in[i].shape.dim[axis];
        TRY(need_shape(c, i, &want));
        if (want.dim[axis] > INT64_MAX - s.dim[axis])
            return REJECT(c, "axis %lld gets too long", (long long)axis);
        s.dim[axis] += want.dim[axis];
    }
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    int64_t axis = n->attrs[0].i, start = 0;
    for (int i = 0; i < n->n_in; i++) {
        int64_t length = build_shape(b, n->in[i])->dim[axis];
        if (wants[i])
            d_in[i] =
                build(b, OP_slice, IN(d_out[0]),
                      ATTRS({"axis", .i = axis}, {"start", .i = start}, {"length", .i = length}));
        start += length;
    }
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,2] {axis=1}"},
    {.text = "f32[3,5] {axis=0}"},
    {.text = "f32[1,3,2], f32[4,3,2], f32[2,3,2] {axis=0}"},
    {.text = "f32[2,17,3], f32[2,1,3], f32[2,5,3] {axis=1}"},
    {.text = "i32[4]~9, i32[3]~9 {axis=0}"},
};
static const char *const rejects[] = {
    "f32[3,5], f32[2,5] {axis=1}", "f32[3,5], f32[3,5] {axis=2}", "f32[3], f64[3] {axis=0}",
    "f32[3], f32[3,1] {axis=0}",   "f32[3], _, f32[3] {axis=0}",  "f32[], f32[] {axis=0}",
};

const struct op_def op_def_concat = {
    .name = "concat",
    .synopsis = "y = the inputs one after the other along axis",
    .min_in = 1,
    .max_in = -1,
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
