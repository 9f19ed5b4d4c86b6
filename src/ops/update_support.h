/* update_support.h: checks that the update rules share. */
#ifndef SNUG_OPS_UPDATE_SUPPORT_H
#define SNUG_OPS_UPDATE_SUPPORT_H

#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number kept in memory (learning rate, gradient scale): one element, f32, or f64 in programs
 * that compute in f64. */
static inline enum status need_number(const struct op_call *c, int i)
{
    if (!call_has(c, i))
        return REJECT(c, "input %d is absent", i);
    if (c->in[i].dtype != DTYPE_F32 && c->in[i].dtype != DTYPE_F64)
        return REJECT(c, "input %d must be f32 or f64, not %s", i, dtype_name(c->in[i].dtype));
    if (shape_elems(&c->in[i].shape) != 1)
        return REJECT(c, "input %d must have one element", i);
    return OK;
}

/* The step number: one i32. */
static inline enum status need_step(const struct op_call *c, int i)
{
    TRY(need_dtype(c, i, DTYPE_I32));
    if (shape_elems(&c->in[i].shape) != 1)
        return REJECT(c, "input %d (step) must have one element", i);
    return OK;
}

/* A float tensor of the parameter's (input 0's) shape. */
static inline enum status need_like_param(const struct op_call *c, int i)
{
    TRY(need_float(c, i));
    return need_shape(c, i, &c->in[0].shape);
}

#ifdef __cplusplus
}
#endif
#endif
