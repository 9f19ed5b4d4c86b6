/* residual_into_linear.c:
 *
 *     y = linear(x, w, b)
 *     s = add(r, y)            ==>    s = linear(x, w, b, r)
 *
 * when s alone reads y and r is there before y is made. Either order of the sum. Where y has a
 * residual already that is a product by itself, that one takes r:
 *
 *     y = linear(x', w', b', linear(x, w, b))
 *     s = add(r, y)            ==>    s = linear(x', w', b', linear(x, w, b, r))
 */
#include "rewrite/rewrite_internal.h"

enum { RESIDUAL = 3 };

/* The product that a sum of products which ends with node k begins with, if it can take one more;
 * k itself where it is no sum yet. NODE_NONE: it begins with something else. */
static node_id first_of_sum(const struct rewriting *r, node_id k)
{
    while (k != NODE_NONE && rewrite_has_input(graph_node(r->g, k), RESIDUAL))
        k = rewrite_sole_source(r, graph_node(r->g, k)->in[RESIDUAL], OP_linear, k);
    return k;
}

enum status rewrite_residual_into_linear(struct rewriting *r, node_id k, bool *applied)
{
    const struct node *sum = graph_node(r->g, k);
    for (int i = 0; sum->op == OP_add && i < 2; i++) {
        value_id y = sum->in[i], residual = sum->in[1 - i];
        node_id linear = rewrite_sole_source(r, y, OP_linear, k), first = first_of_sum(r, linear);
        if (first == NODE_NONE || !rewrite_same_type(r->g, y, residual) ||
            !rewrite_exists_before(r->g, residual, first))
            continue;
        TRY(rewrite_set_input(r, first, RESIDUAL, residual));
        rewrite_absorb(r, linear, k);
        *applied = true;
        return OK;
    }
    return OK;
}
