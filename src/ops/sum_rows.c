#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_NONE}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    enum dtype d = (enum dtype)call_int(c, 0);
    d = d == DTYPE_NONE ? c->in[0].dtype : d;
    if (!dtype_is_float(d))
        return REJECT(c, "dtype must be a float dtype, not %s", dtype_name(d));
    struct shape s = shape_of(1, c->in[0].shape.dim[1]);
    if (call_has(c, 1)) {
        TRY(need_dtype(c, 1, d));
        TRY(need_shape(c, 1, &s));
    }
    out_set(c, 0, d, s);
    return OK;
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        enum dtype from = graph_value(b->g, n->in[0])->dtype;
        struct shape x = *build_shape(b, n->in[0]);
        value_id dy = d_out[0];
        if (graph_value(b->g, dy)->dtype != from)
            dy = build(b, OP_cast, IN(dy), ATTRS({"dtype", .i = from}));
        struct attr_set dims = {.name = "dims", .n_ints = 2, .ints = {x.dim[0], x.dim[1]}};
        d_in[0] = build(b, OP_broadcast, IN(dy), &dims, 1);
    }
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 1}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[5,3]"},
    {.text = "f32[37,19], f32[19]"},
    {.text = "bf16[7,5], f32[5] {dtype=f32}"},
    {.text = "f32[2,1030]"},
    {.text = "f32[1,4], f32[4]"},
    {.text = "f32[1300,3]"},
};
static const char *const rejects[] = {
    "f32[5]",
    "f32[5,3], f32[5]",
    "f32[5,3], f64[3]",
    "bf16[5,3], bf16[3] {dtype=f32}",
    "f32[5,3] {dtype=i32}",
    "i32[5,3]",
};

const struct op_def op_def_sum_rows = {
    .name = "sum_rows",
    .synopsis = "y[c] = sum over r of x[r, c] (+ acc[c])",
    .min_in = 1,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    .aliases = aliases,
    .accumulate_in = 1,
    .accumulate_out = 0,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
