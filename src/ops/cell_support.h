/* cell_support.h: what the cells of recurrent networks share: a row of gates, G numbers for each of
 * H units behind each other, beside rows of H units. */
#ifndef SNUG_OPS_CELL_SUPPORT_H
#define SNUG_OPS_CELL_SUPPORT_H

#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LSTM_GATES = 4, GRU_GATES = 3 };

/* Input i_gates is [N, G H] where input i_units is [N, H], both of the dtype of input 0. */
static inline enum status MUST_CHECK need_gates(const struct op_call *c, int i_gates, int i_units,
                                                int n_gates)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, i_units, 2));
    const struct shape *units = &c->in[i_units].shape;
    struct shape due = shape_of(2, units->dim[0], n_gates * units->dim[1]);
    TRY(need_dtype(c, i_gates, c->in[0].dtype));
    TRY(need_dtype(c, i_units, c->in[0].dtype));
    return need_shape(c, i_gates, &due);
}

/* Input i, where it is given, is as input `like`. */
static inline enum status MUST_CHECK need_like(const struct op_call *c, int i, int like)
{
    if (!call_has(c, i))
        return OK;
    TRY(need_dtype(c, i, c->in[like].dtype));
    return need_shape(c, i, &c->in[like].shape);
}

#ifdef __cplusplus
}
#endif
#endif
