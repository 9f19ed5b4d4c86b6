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

/* ---- what adapters of experts are built of, too ---- */

/* The model's table grows by n, which are there when n_adapters says so; NULL: out of memory. */
struct model_adapter *adapters_make_room(struct parts *p, int n);

value_id adapters_concat(struct parts *p, const value_id *parts, int n, int64_t axis);
/* x at [start, ..) along an axis of zeros that is `size` long. */
value_id adapters_pad(struct parts *p, value_id x, int64_t axis, int64_t start, int64_t size);
value_id adapters_scaled(struct parts *p, value_id x, double factor);

#ifdef __cplusplus
}
#endif
#endif
