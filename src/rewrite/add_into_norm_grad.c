/* add_into_norm_grad.c:
 *
 *     dx, dw, db = layer_norm_grad(dy, x, w, mean, rstd)
 *     s = add(d, dx)            ==>    s, dw, db = layer_norm_grad(dy, x, w, mean, rstd, d)
 *
 * when s alone reads dx and d is there before; likewise rms_norm_grad. In a transformer d is the
 * gradient that came down the residual path. Either order of the sum.
 */
#include "rewrite/rewrite_internal.h"

/* Which ops can add, and to which input. */
static const struct {
    enum op_id op;
    int add;
} norms[] = {{OP_layer_norm_grad, 5}, {OP_rms_norm_grad, 4}};

enum status rewrite_add_into_norm_grad(struct rewriting *r, node_id k, bool *applied)
{
    const struct node *sum = graph_node(r->g, k);
    for (size_t i = 0; sum->op == OP_add && i < 2 * ARRAY_LEN(norms); i++) {
        value_id dx = sum->in[i % 2], d = sum->in[1 - i % 2];
        node_id norm = rewrite_sole_source(r, dx, norms[i / 2].op, k);
        if (norm == NODE_NONE || rewrite_has_input(graph_node(r->g, norm), norms[i / 2].add) ||
            !rewrite_same_type(r->g, dx, d) || !rewrite_exists_before(r->g, d, norm))
            continue;
        TRY(rewrite_set_input(r, norm, norms[i / 2].add, d));
        rewrite_absorb(r, norm, k);
        *applied = true;
        return OK;
    }
    return OK;
}
