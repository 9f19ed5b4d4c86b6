/* bias_into_gelu.c:
 *
 *     x = linear(a, w, b)            x = linear(a, w)
 *     y = gelu(x)            ==>     y = gelu_bias(x, b)
 *
 * when y alone reads x. What is saved for the backward pass is x in both; there, gelu_bias_grad
 * makes the bias gradient on its way.
 */
#include "rewrite/rewrite_internal.h"

enum { LINEAR_BIAS = 2, LINEAR_RESIDUAL = 3, GELU_BIAS = 1 };

enum status rewrite_bias_into_gelu(struct rewriting *r, node_id k, bool *applied)
{
    struct node *gelu = graph_node(r->g, k);
    if (gelu->op != OP_gelu)
        return OK;
    node_id linear = rewrite_sole_source(r, gelu->in[0], OP_linear, k);
    if (linear == NODE_NONE)
        return OK;
    const struct node *l = graph_node(r->g, linear);
    if (!rewrite_has_input(l, LINEAR_BIAS) || rewrite_has_input(l, LINEAR_RESIDUAL))
        return OK;
    value_id bias = l->in[LINEAR_BIAS];
    if (rewrite_overwritten(r->g, bias, linear, k))
        return OK; /* it would be read too late */
    TRY(rewrite_set_input(r, linear, LINEAR_BIAS, VALUE_NONE));
    gelu->op = OP_gelu_bias; /* its attributes are gelu's */
    TRY(rewrite_set_input(r, k, GELU_BIAS, bias));
    *applied = true;
    return OK;
}
