/* residual_into_linear.c:
 *
 *     y = linear(x, w, b)
 *     s = add(r, y)            ==>    s = linear(x, w, b, r)
 *
 * when s alone reads y and r is there before y is made. Either order of the sum.
 */
#include "rewrite/rewrite_internal.h"

enum { RESIDUAL = 3 };

enum status rewrite_residual_into_linear(struct rewriting *r, node_id k, bool *applied)
{
    const struct node *sum = graph_node(r->g, k);
    for (int i = 0; sum->op == OP_add && i < 2; i++) {
        value_id y = sum->in[i], residual = sum->in[1 - i];
        node_id linear = rewrite_sole_source(r, y, OP_linear, k);
        if (linear == NODE_NONE || rewrite_has_input(graph_node(r->g, linear), RESIDUAL) ||
            !rewrite_same_type(r->g, y, residual) || !rewrite_exists_before(r->g, residual, linear))
            continue;
        TRY(rewrite_set_input(r, linear, RESIDUAL, residual));
        rewrite_absorb(r, linear, k);
        *applied = true;
        return OK;
    }
    return OK;
}
