#include "ops/op_support.h"

enum status need_float(const struct op_call *c, int i)
{
    if (!dtype_is_float(c->in[i].dtype))
        return REJECT(c, "input %d must be a float tensor, not %s", i, dtype_name(c->in[i].dtype));
    return OK;
}

enum status need_same_float(const struct op_call *c, int first, int last)
{
    TRY(need_float(c, first));
    for (int i = first + 1; i <= last; i++) {
        if (call_has(c, i) && c->in[i].dtype != c->in[first].dtype)
            return REJECT(c, "input %d is %s but input %d is %s", i, dtype_name(c->in[i].dtype),
                          first, dtype_name(c->in[first].dtype));
    }
    return OK;
}

enum status need_dtype(const struct op_call *c, int i, enum dtype d)
{
    if (c->in[i].dtype != d)
        return REJECT(c, "input %d must be %s, not %s", i, dtype_name(d),
                      dtype_name(c->in[i].dtype));
    return OK;
}

enum status need_rank(const struct op_call *c, int i, int rank)
{
    if (c->in[i].shape.rank != rank)
        return REJECT(c, "input %d must have rank %d, not %d", i, rank, c->in[i].shape.rank);
    return OK;
}

enum status need_shape(const struct op_call *c, int i, const struct shape *s)
{
    char is[SHAPE_TEXT], want[SHAPE_TEXT];
    if (!shape_equal(&c->in[i].shape, s))
        return REJECT(c, "input %d must have shape %s, not %s", i, shape_text(want, s),
                      shape_text(is, &c->in[i].shape));
    return OK;
}

void out_set(const struct op_call *c, int o, enum dtype d, struct shape s)
{
    c->out[o].dtype = d;
    c->out[o].shape = s;
}

void out_like(const struct op_call *c, int o, int i)
{
    out_set(c, o, c->in[i].dtype, c->in[i].shape);
}

enum status infer_unary(const struct op_call *c)
{
    TRY(need_float(c, 0));
    out_like(c, 0, 0);
    return OK;
}

enum status infer_unary_grad(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

value_id sum_to_shape_of(struct builder *b, value_id dy, value_id v)
{
    if (b->status != OK)
        return VALUE_NONE;
    const struct shape *from = build_shape(b, dy), *to = build_shape(b, v);
    if (shape_equal(from, to))
        return dy;
    struct shape target = *to;
    struct shape rows = shape_of(2, shape_outer(from, from->rank - to->rank), shape_elems(&target));
    value_id flat = build_reshape(b, dy, rows);
    return build_reshape(b, build(b, OP_sum_rows, IN(flat), NO_ATTRS), target);
}
