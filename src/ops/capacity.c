#include "ops/expert_support.h"

static const struct attr_def attrs[] = {
    {"rows", ATTR_INT, {.i = 0}, true},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    struct shape rows = shape_of(1, shape_elems(&c->in[0].shape));
    TRY(need_dtype(c, 1, DTYPE_I32));
    TRY(need_shape(c, 1, &c->in[0].shape));
    TRY(need_dtype(c, 2, DTYPE_I32));
    TRY(need_shape(c, 2, &rows));
    TRY(need_offsets(c, 3));
    if (call_int(c, CAPACITY_ROWS) < 1)
        return REJECT(c, "an expert takes at least one row");
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    if (wants[0])
        d_in[0] = build(b, OP_capacity, IN(d_out[0], n->in[1], n->in[2], n->in[3]),
                        ATTRS({.name = "rows", .i = n->attrs[CAPACITY_ROWS].i}));
    return builder_status(b);
}

static int64_t index_limit(const struct op_call *c)
{
    return n_groups(c, 3);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[5,2], i32[5,2]~4, i32[10], i32[5] {rows=2}"},
    {.text = "f32[40,1], i32[40,1]~3, i32[40], i32[4] {rows=7}"},
    {.text = "f32[3,2], i32[3,2]~1, i32[6], i32[2] {rows=100}"},
};
static const char *const rejects[] = {
    "f32[5,2], i32[5,2]~4, i32[10], i32[5] {rows=0}",
    "f32[5,2], i32[5,1]~4, i32[10], i32[5] {rows=2}",
    "f32[5,2], i32[5,2]~4, i32[9], i32[5] {rows=2}",
    "f32[5,2], i32[5,2]~4, i32[10], f32[5] {rows=2}",
};

const struct op_def op_def_capacity = {
    .name = "capacity",
    .synopsis = "y[n, j] = x[n, j] where slot j of token n is among the first `rows` rows of its "
                "expert, else 0",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .aliases = aliases,
    .no_grad_inputs = 1u << 1 | 1u << 2 | 1u << 3,
    .permutation_inputs = 1u << 2,
    .offset_inputs = 1u << 3,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
