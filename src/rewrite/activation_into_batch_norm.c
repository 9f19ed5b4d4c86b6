/* activation_into_batch_norm.c:
 *
 *     z, mean, rstd = batch_norm(x, gamma, beta)
 *     y = leaky_relu(z)            ==>     y, mean, rstd = batch_norm_activation(x, gamma, beta)
 *
 * when y alone reads z; likewise relu and silu. The gradient makes z again from x, which the norm's
 * gradient reads anyway.
 */
#include "graph/builder.h"
#include "rewrite/rewrite_internal.h"

enum { EPSILON, SLOPE, SILU }; /* attributes of batch_norm_activation */

static bool is_activation(enum op_id op)
{
    return op == OP_leaky_relu || op == OP_relu || op == OP_silu;
}

enum status rewrite_activation_into_batch_norm(struct rewriting *r, node_id k, bool *applied)
{
    const struct node *activation = graph_node(r->g, k);
    if (!is_activation(activation->op))
        return OK;
    node_id source = rewrite_sole_source(r, activation->in[0], OP_batch_norm, k);
    if (source == NODE_NONE)
        return OK;
    bool leaks = activation->op == OP_leaky_relu;
    const struct attr attrs[] = {
        [EPSILON] = *node_attr(graph_node(r->g, source), "epsilon"),
        [SLOPE] = {.f = leaks ? node_attr(activation, "slope")->f : 0.0},
        [SILU] = {.i = activation->op == OP_silu},
    };
    TRY(rewrite_set_op(r, source, OP_batch_norm_activation, attrs));
    rewrite_absorb(r, source, k);
    *applied = true;
    return OK;
}
