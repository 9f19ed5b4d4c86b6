#include "device/geometry.h"

struct box box_of(const struct shape *x, int first, int last)
{
    return (struct box){shape_outer(x, first), shape_outer(x, last + 1) / shape_outer(x, first),
                        shape_inner(x, last + 1)};
}

bool sum_box(const struct op_call *c, struct box *box)
{
    const struct shape *x = &c->in[0].shape;
    const struct attr *axes = &c->attrs[0];
    int first = x->rank, last = -1;
    int64_t length = 1;
    for (int i = 0; i < axes->n_ints; i++) {
        int axis = (int)axes->ints[i];
        length *= x->dim[axis];
        if (x->dim[axis] == 1)
            continue;
        first = MIN(first, axis);
        last = MAX(last, axis);
    }
    if (axes->n_ints == 0)
        *box = (struct box){1, shape_elems(x), 1};
    else if (last < 0)
        *box = (struct box){1, 1, shape_elems(x)};
    else
        *box = box_of(x, first, last);
    return axes->n_ints == 0 || box->length == length;
}

struct permutation transpose_simplified(const struct op_call *c)
{
    const struct shape *in = &c->in[0].shape;
    struct permutation p = {0};
    int64_t last = -2;
    for (int i = 0; i < in->rank; i++) {
        int64_t axis = c->attrs[0].ints[i];
        if (in->dim[axis] == 1)
            continue;
        int64_t between = last + 1; /* axes of size 1 do not keep neighbours apart */
        while (between >= 0 && between < axis && in->dim[between] == 1)
            between++;
        if (p.rank == 0 || between != axis)
            p.dim[p.rank++] = 1;
        p.dim[p.rank - 1] *= in->dim[axis];
        p.src_step[p.rank - 1] = shape_inner(in, (int)axis + 1);
        last = axis;
    }
    return p;
}
