/* adapted_linear.h: a linear layer with adapters (adapter.h) beside the layers it is stacked of. */
#ifndef SNUG_MODEL_ADAPTED_LINEAR_H
#define SNUG_MODEL_ADAPTED_LINEAR_H

#include "model/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x w^T + bias, the bias where there is one. */
value_id plain_linear(struct parts *p, value_id x, value_id w, value_id bias);

/* The same with the adapters of those pieces that p->m->adapter names; w (and bias) are the
 * parameters added last. */
value_id adapted_linear(struct parts *p, value_id x, const struct linear_spec *s, value_id w,
                        value_id bias);

#ifdef __cplusplus
}
#endif
#endif
