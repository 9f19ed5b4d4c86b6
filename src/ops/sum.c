#include "ops/reduce_axes.h"

static const struct attr_def attrs[] = {REDUCE_ATTRS};

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        struct shape x = *build_shape(b, n->in[0]);
        d_in[0] = reduce_expand(b, d_out[0], &x, &n->attrs[0]);
    }
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5]"},
    {.text = "f32[3,5] {axes=[0]}"},
    {.text = "f32[3,5] {axes=[1]}"},
    {.text = "f32[2,3,17] {axes=[1], keep=true}"},
    {.text = "f32[2,3,17] {axes=[0,2]}"},
    {.text = "f32[2,3,4,5] {axes=[2,1]}"},
    {.text = "f32[2,1300] {axes=[1]}"},
    {.text = "f32[1300,2] {axes=[0]}"},
    {.text = "f32[3,4] {axes=[0,1], keep=true}"},
    {.text = "f32[]"},
};
static const char *const rejects[] = {
    "i32[3]",
    "f32[3,5] {axes=[2]}",
    "f32[3,5] {axes=[1,1]}",
    "f32[3,5] {axes=[-1]}",
};

const struct op_def op_def_sum = {
    .name = "sum",
    .synopsis = "y = sum of x over axes (none given: all); keep leaves them as 1",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = reduce_infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
