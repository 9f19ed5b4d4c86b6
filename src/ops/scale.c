#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "factor", .type = ATTR_FLOAT, .value = {.f = 1.0}},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    if (call_has(c, 1)) {
        if (c->in[1].dtype != DTYPE_F32 && c->in[1].dtype != c->in[0].dtype)
            return REJECT(c, "s must be f32 or x's %s, not %s", dtype_name(c->in[0].dtype),
                          dtype_name(c->in[1].dtype));
        if (shape_elems(&c->in[1].shape) != 1)
            return REJECT(c, "s must have one element");
    }
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id s = n->n_in > 1 ? n->in[1] : VALUE_NONE;
    if (wants[0])
        d_in[0] = build_with(b, OP_scale, IN(d_out[0], s), n->attrs);
    return builder_status(b);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {factor=0.5}"},
    {.text = "f32[2,17], f32[1] {factor=-2.0}"},
    {.text = "f32[1025], f32[]"},
    {.text = "f32[]"},
};
static const char *const rejects[] = {
    "i32[3]",
    "f32[3], f32[2]",
    "f32[3], i32[1]",
};

const struct op_def op_def_scale = {
    .name = "scale",
    .synopsis = "y = factor s x; s is an optional one-element tensor",
    .min_in = 1,
    .max_in = 2,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
