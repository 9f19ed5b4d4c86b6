#include "ops/reduce_axes.h"

static const struct attr_def attrs[] = {
    {.name = "axis", .type = ATTR_INT, .value = {.i = -1}},
};

static enum status infer(const struct op_call *c)
{
    const struct shape *x = &c->in[1].shape;
    int64_t axis = call_int(c, 0) == -1 ? x->rank - 1 : call_int(c, 0);
    TRY(need_same_float(c, 0, 2));
    if (axis < 0 || axis >= x->rank)
        return REJECT(c, "axis %lld of a tensor of rank %d", (long long)axis, x->rank);
    struct shape y = reduce_shape(x, 1u << axis, false);
    TRY(need_shape(c, 0, &y));
    TRY(need_shape(c, 2, &y));
    out_like(c, 0, 1);
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "f32[3], f32[3,5]=1, f32[3]=1"},
    {.text = "f32[5], f32[3,5]=2, f32[5]=2 {axis=0}"},
    {.text = "f32[2,17], f32[2,3,17]=1, f32[2,17]=1 {axis=1}"},
    {.text = "f32[], f32[7], f32[]=9"},
};
static const char *const rejects[] = {
    "f32[3], f32[3,5], f32[5]",
    "f32[5], f32[3,5], f32[3]",
    "f32[3], f32[3,5], f64[3]",
    "f32[], f32[], f32[]",
};

const struct op_def op_def_max_grad = {
    .name = "max_grad",
    .synopsis = "dx = dy at the first element along axis where x = y, else 0",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
