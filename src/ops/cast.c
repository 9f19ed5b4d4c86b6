#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "dtype", .type = ATTR_DTYPE, .required = true},
};

static enum status infer(const struct op_call *c)
{
    enum dtype to = (enum dtype)call_int(c, 0);
    if (!call_has(c, 0))
        return REJECT(c, "x is absent");
    if (!dtype_is_float(to))
        return REJECT(c, "dtype must be a float dtype, not %s", dtype_name(to));
    out_set(c, 0, to, c->in[0].shape);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0]) {
        enum dtype from = graph_value(b->g, n->in[0])->dtype;
        d_in[0] = build(b, OP_cast, IN(d_out[0]), ATTRS({"dtype", .i = from}));
    }
    return builder_status(b);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {dtype=bf16}"},  {.text = "f32[2,17] {dtype=f16}"},
    {.text = "f32[1025] {dtype=f64}"},  {.text = "bf16[1025] {dtype=f32}"},
    {.text = "f16[7] {dtype=f32}"},     {.text = "bf16[9] {dtype=f16}"},
    {.text = "i32[5]~100 {dtype=f32}"}, {.text = "f32[] {dtype=f32}"},
};
static const char *const rejects[] = {
    "f32[3] {dtype=i32}",
    "f32[3] {dtype=none}",
};

const struct op_def op_def_cast = {
    .name = "cast",
    .synopsis = "y = x in another float dtype, rounded to nearest even",
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
