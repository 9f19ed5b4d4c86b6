/* film_support.h: what film, alone or behind a norm, and its gradient share: x is [N, .., C], gamma
 * and beta are [N, C]. "FiLM: Visual Reasoning with a General Conditioning Layer", Perez et al.
 * 2018. */
#ifndef SNUG_OPS_FILM_SUPPORT_H
#define SNUG_OPS_FILM_SUPPORT_H

#include "ops/channel_norm_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Input i has a number for every channel of every sample of input 0, in its dtype. */
static inline enum status MUST_CHECK need_per_sample(const struct op_call *c, int i)
{
    struct shape due = shape_of(2, c->in[0].shape.dim[0], shape_last(&c->in[0].shape));
    TRY(need_dtype(c, i, c->in[0].dtype));
    return need_shape(c, i, &due);
}

#ifdef __cplusplus
}
#endif
#endif
