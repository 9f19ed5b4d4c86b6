/* reduce_axes.h: what sum, mean and max share: the set of axes as an attribute and as a bit mask,
 * the reduced shape, and the way back from it. */
#ifndef SNUG_OPS_REDUCE_AXES_H
#define SNUG_OPS_REDUCE_AXES_H

#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bit i of *mask: axis i is reduced. No axes given: all. False when an axis is out of range or
 * given twice. */
static inline bool reduce_mask(const struct attr *axes, int rank, unsigned *mask)
{
    *mask = axes->n_ints == 0 ? (1u << rank) - 1u : 0u;
    for (int i = 0; i < axes->n_ints; i++) {
        int64_t a = axes->ints[i];
        if (a < 0 || a >= rank || (*mask & 1u << a))
            return false;
        *mask |= 1u << a;
    }
    return true;
}

static inline struct shape reduce_shape(const struct shape *x, unsigned mask, bool keep)
{
    struct shape s = {.rank = 0};
    for (int i = 0; i < x->rank; i++) {
        if (!(mask & 1u << i))
            s.dim[s.rank++] = x->dim[i];
        else if (keep)
            s.dim[s.rank++] = 1;
    }
    return s;
}

/* Attributes and infer of reductions over any axes. */
#define REDUCE_ATTRS                      \
    {.name = "axes", .type = ATTR_INTS},  \
    {                                     \
        .name = "keep", .type = ATTR_BOOL \
    }

static inline enum status MUST_CHECK reduce_infer(const struct op_call *c)
{
    unsigned mask;
    TRY(need_float(c, 0));
    if (!reduce_mask(&c->attrs[0], c->in[0].shape.rank, &mask))
        return REJECT(c, "axes must name axes of x, each once (x has rank %d)",
                      c->in[0].shape.rank);
    out_set(c, 0, c->in[0].dtype, reduce_shape(&c->in[0].shape, mask, call_bool(c, 1)));
    return OK;
}

/* dy, of the reduced shape, repeated along the reduced axes back to x's shape. broadcast adds
 * leading axes only, so the reduced axes come first and a transpose puts them in their places. */
static inline value_id reduce_expand(struct builder *b, value_id dy, const struct shape *x,
                                     const struct attr *axes)
{
    unsigned mask;
    if (b->status != OK || !reduce_mask(axes, x->rank, &mask))
        return VALUE_NONE;
    struct attr_set dims = {.name = "dims"}, order = {.name = "axes", .n_ints = x->rank};
    bool in_place = true;
    for (int reduced = 1; reduced >= 0; reduced--) {
        for (int i = 0; i < x->rank; i++) {
            if ((int)(mask >> i & 1u) != reduced)
                continue;
            in_place = in_place && dims.n_ints == i;
            order.ints[i] = dims.n_ints;
            dims.ints[dims.n_ints++] = x->dim[i];
        }
    }
    dy = build_reshape(b, dy, reduce_shape(x, mask, false));
    dy = build(b, OP_broadcast, &dy, 1, &dims, 1);
    return in_place ? dy : build(b, OP_transpose, &dy, 1, &order, 1);
}

#ifdef __cplusplus
}
#endif
#endif
