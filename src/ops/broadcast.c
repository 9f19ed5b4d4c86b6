#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "dims", .type = ATTR_INTS, .required = true},
};

static enum status infer(const struct op_call *c)
{
    const struct attr *dims = &c->attrs[0];
    if (!call_has(c, 0))
        return REJECT(c, "x is absent");
    if (dims->n_ints > MAX_RANK)
        return REJECT(c, "%d dims; at most %d", dims->n_ints, MAX_RANK);
    struct shape s = {.rank = dims->n_ints};
    for (int i = 0; i < s.rank; i++) {
        s.dim[i] = dims->ints[i];
        if (s.dim[i] < 1)
            return REJECT(c, "dim %d is %lld", i, (long long)s.dim[i]);
    }
    char x[SHAPE_TEXT], to[SHAPE_TEXT];
    if (!shape_is_suffix(&c->in[0].shape, &s))
        return REJECT(c, "x's shape %s is not a suffix of %s", shape_text(x, &c->in[0].shape),
                      shape_text(to, &s));
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = sum_to_shape_of(b, d_out[0], n->in[0]);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[5] {dims=[3,5]}"},        {.text = "f32[] {dims=[2,3]}"},
    {.text = "f32[3,2] {dims=[4,17,3,2]}"}, {.text = "f32[3] {dims=[3]}"},
    {.text = "i32[3]~7 {dims=[2,3]}"},
};
static const char *const rejects[] = {
    "f32[5] {dims=[5,3]}", "f32[2,5] {dims=[5]}",           "f32[5] {dims=[0,5]}",
    "f32[3] {dims=[]}",    "f32[1] {dims=[1,1,1,1,1,1,1]}",
};

const struct op_def op_def_broadcast = {
    .name = "broadcast",
    .synopsis = "y = x repeated over new leading axes, to dims; x's shape is a suffix of dims",
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
