#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "axes", .type = ATTR_INTS, .required = true},
};

static enum status infer(const struct op_call *c)
{
    const struct attr *axes = &c->attrs[0];
    const struct shape *x = &c->in[0].shape;
    if (!call_has(c, 0))
        return REJECT(c, "x is absent");
    if (axes->n_ints != x->rank)
        return REJECT(c, "%d axes for a tensor of rank %d", axes->n_ints, x->rank);
    struct shape s = {.rank = x->rank};
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t a = axes->ints[i];
        if (a < 0 || a >= x->rank || (seen & 1u << a))
            return REJECT(c, "axes must name every axis once");
        seen |= 1u << a;
        s.dim[i] = x->dim[a];
    }
    out_set(c, 0, c->in[0].dtype, s);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    struct attr_set inverse = {.name = "axes", .n_ints = n->attrs[0].n_ints};
    for (int i = 0; i < inverse.n_ints; i++)
        inverse.ints[n->attrs[0].ints[i]] = i;
    if (wants[0])
        d_in[0] = build(b, OP_transpose, IN(d_out[0]), &inverse, 1);
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {axes=[1,0]}"},
    {.text = "f32[2,3,4,5] {axes=[0,2,1,3]}"},
    {.text = "f32[37,41] {axes=[1,0]}"},
    {.text = "f32[2,3,4] {axes=[2,0,1]}"},
    {.text = "f32[2,1,33,4] {axes=[3,2,1,0]}"},
    {.text = "f32[2,3,2,3,2] {axes=[4,1,3,0,2]}"},
    {.text = "f32[7] {axes=[0]}"},
    {.text = "f32[3,4] {axes=[0,1]}"},
    {.text = "f32[] {axes=[]}"},
    {.text = "i32[3,20]~9 {axes=[1,0]}"},
};
static const char *const rejects[] = {
    "f32[3,5] {axes=[0]}",
    "f32[3,5] {axes=[0,0]}",
    "f32[3,5] {axes=[0,2]}",
    "f32[3,5] {axes=[-1,0]}",
};

const struct op_def op_def_transpose = {
    .name = "transpose",
    .synopsis = "y = x with its axes permuted: y.dim[i] = x.dim[axes[i]]",
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
