/* scan_support.h: what the selective scan and its gradient share: x and steps are [B, T, D], a is
 * [D, N], what goes in and what is read out are [B, T, N].
 * "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", Gu and Dao 2023, eq. 2. */
#ifndef SNUG_OPS_SCAN_SUPPORT_H
#define SNUG_OPS_SCAN_SUPPORT_H

#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

struct scan_dims {
    int64_t batch, n_steps, channels, states;
};

/* Inputs i .. i + 4 are those of a scan. */
static inline struct scan_dims scan_dims_of(const struct op_call *c, int i)
{
    const struct shape *x = &c->in[i].shape;
    return (struct scan_dims){x->dim[0], x->dim[1], x->dim[2], c->in[i + 2].shape.dim[1]};
}

static inline enum status MUST_CHECK need_scan(const struct op_call *c, int i)
{
    TRY(need_same_float(c, 0, i + 4));
    TRY(need_rank(c, i, 3));
    TRY(need_rank(c, i + 2, 2));
    struct scan_dims d = scan_dims_of(c, i);
    struct shape a = shape_of(2, d.channels, d.states);
    struct shape in = shape_of(3, d.batch, d.n_steps, d.states);
    TRY(need_shape(c, i + 1, &c->in[i].shape));
    TRY(need_shape(c, i + 2, &a));
    TRY(need_shape(c, i + 3, &in));
    return need_shape(c, i + 4, &in);
}

static inline double scan_flops(const struct scan_dims *d)
{
    return 8.0 * (double)(d->batch * d->n_steps) * (double)(d->channels * d->states);
}

#ifdef __cplusplus
}
#endif
#endif
