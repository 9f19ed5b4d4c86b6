#include "optim/products.h"

#include "graph/slice.h"
#include "ops/squares_chunk.h"

/* What is smaller than a few chunks is not worth it. */
bool gradient_expands(const struct builder *b, value_id grad)
{
    enum { FEW_CHUNKS = 4 };
    node_id producer = graph_value(b->g, grad)->producer;
    return producer != NODE_NONE && node_expands(b->g, graph_node(b->g, producer)) &&
           shape_elems(build_shape(b, grad)) >= (int64_t)FEW_CHUNKS * SQUARES_CHUNK;
}

/* A gradient in f16 may be infinite where its factors are not: there the numbers themselves must be
 * looked at. */
const struct node *gradient_product(const struct builder *b, value_id grad, int64_t most_rows)
{
    if (!gradient_expands(b, grad) || graph_value(b->g, grad)->dtype == DTYPE_F16)
        return NULL;
    const struct node *n = graph_node(b->g, graph_value(b->g, grad)->producer);
    bool is_product = n->op == OP_linear_grad_weight && (n->n_in < 3 || n->in[2] == VALUE_NONE);
    return is_product && shape_rows(build_shape(b, n->in[0])) <= most_rows ? n : NULL;
}
