#include "ops/expert_support.h"

static const struct attr_def attrs[] = {
    {"k", ATTR_INT, {.i = 0}, true},
    {"normalize", ATTR_BOOL, {.i = 0}, false},
    {"epsilon", ATTR_FLOAT, {.f = 0.0}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    int64_t n = c->in[0].shape.dim[0], n_experts = c->in[0].shape.dim[1];
    int64_t k = call_int(c, ROUTE_EXPERTS_PER_TOKEN);
    if (k < 1 || k > n_experts)
        return REJECT(c, "k is %lld, there are %lld experts", (long long)k, (long long)n_experts);
    if (n > INT32_MAX / k)
        return REJECT(c, "%lld tokens of %lld experts each are more rows than 2^31 - 1",
                      (long long)n, (long long)k);
    if (!(call_float(c, ROUTE_EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    out_set(c, 0, dtype_accumulator(c->in[0].dtype), shape_of(2, n, k));
    out_set(c, 1, DTYPE_I32, shape_of(2, n, k));
    out_set(c, 2, DTYPE_I32, shape_of(1, n * k));
    out_set(c, 3, DTYPE_I32, shape_of(1, n * k));
    out_set(c, 4, DTYPE_I32, shape_of(1, n_experts + 1));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    TRY(no_grad_through(n, d_out, 1, 4));
    if (wants[0])
        d_in[0] = build(b, OP_route_grad, IN(d_out[0], n->in[0], n->out[1]),
                        ATTRS({.name = "normalize", .i = n->attrs[ROUTE_NORMALIZE].i},
                              {.name = "epsilon", .f = n->attrs[ROUTE_EPSILON].f}));
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape) * (double)call_int(c, ROUTE_EXPERTS_PER_TOKEN);
}

static const struct op_sample samples[] = {
    {.text = "f32[5,4]+ {k=2, normalize=true}"},
    {.text = "f32[7,8]+ {k=3}"},
    {.text = "f32[6,3]+ {k=3, normalize=true, epsilon=1e-9}"},
    {.text = "f32[4,1]+ {k=1, normalize=true}"},
    {.text = "f32[40,16]+ {k=1}"},
};
static const char *const rejects[] = {
    "f32[5,4] {k=5}",
    "f32[5,4] {k=0}",
    "f32[5] {k=1}",
    "i32[5,4]~3 {k=1}",
    "f32[5,4] {k=2, epsilon=-1}",
};

const struct op_def op_def_route = {
    .name = "route",
    .synopsis = "the k largest p[n, :], lowest id first among equals (normalize: over their sum + "
                "epsilon); their ids; order and place of the rows sorted by expert, stable; where "
                "each expert's rows begin",
    .min_in = 1,
    .max_in = 1,
    .n_out = 5,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
