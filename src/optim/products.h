/* products.h: gradients of wide layers, which are the product of a few rows: what they are made
 * from is much less than they are. */
#ifndef SNUG_OPTIM_PRODUCTS_H
#define SNUG_OPTIM_PRODUCTS_H

#include "graph/builder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is it large, and made from much less than it is? */
bool gradient_expands(const struct builder *b, value_id grad);
/* The linear_grad_weight of at most so many rows that it is, and nothing else; NULL: it is none. */
const struct node *gradient_product(const struct builder *b, value_id grad, int64_t most_rows);

#ifdef __cplusplus
}
#endif
#endif
