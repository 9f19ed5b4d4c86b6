/* edge_support.h: what the ops of graphs share.
 *
 * Nodes are rows of [B, N, ..], edges are entries of i32 [E]: the nodes that they come from, the
 * nodes that they go to. One graph holds for the whole batch. Ops that add up over the edges of a
 * node have the list of those nodes as their last input, and their number as their first attribute.
 */
#ifndef SNUG_OPS_EDGE_SUPPORT_H
#define SNUG_OPS_EDGE_SUPPORT_H

#include "ops/op_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EDGE_ROWS };
enum { EDGE_DOT_HEADS };
enum { GRID_HEIGHT, GRID_WIDTH, GRID_LOOPS };

#define EDGE_ROWS_ATTR                   \
    {                                    \
        "rows", ATTR_INT, {.i = 0}, true \
    }

/* Input i: a node for each of n edges. */
static inline enum status MUST_CHECK need_edges(const struct op_call *c, int i, int64_t n)
{
    struct shape s = shape_of(1, n);
    TRY(need_dtype(c, i, DTYPE_I32));
    return need_shape(c, i, &s);
}

static inline enum status MUST_CHECK need_rows(const struct op_call *c)
{
    int64_t rows = call_int(c, EDGE_ROWS);
    if (rows < 1 || rows > INT32_MAX)
        return REJECT(c, "rows is %lld", (long long)rows);
    return OK;
}

/* Of ops that add up over a node's edges. */
static inline const struct tensor *edge_targets(const struct op_call *c)
{
    return &c->in[c->n_in - 1];
}

#ifdef __cplusplus
}
#endif
#endif
