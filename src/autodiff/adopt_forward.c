/* adopt_forward.c: a gradient op that computes its forward op's outputs on the way replaces it.
 *
 * The head with cross-entropy makes the logits once and gets loss and gradients from them; keeping
 * the forward node as well would make them twice. Readers of the forward node's outputs are pointed
 * at the gradient node's, and dead-code elimination takes the rest.
 */
#include "autodiff/autodiff.h"

static bool same_inputs(const struct node *forward, const struct node *gradient)
{
    for (int i = 0; i < forward->n_in; i++) {
        if (forward->in[i] != gradient->in[i])
            return false;
    }
    return true;
}

static void replace_value(struct graph *g, value_id from, value_id to)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] == from)
                n->in[i] = to;
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        if (g->outputs.items[i].value == from)
            g->outputs.items[i].value = to;
    }
}

/* Is there an op that computes this one's outputs along with its gradient? */
static bool may_be_adopted(enum op_id op)
{
    for (int other = 0; other < OP_COUNT; other++) {
        if (op_get((enum op_id)other)->gives_outputs_of == op_get(op))
            return true;
    }
    return false;
}

/* Does node `last` wait for one of the outputs of node `first`, its forward inputs aside? Then it
 * cannot give them. Nodes stand in an order in which they can run. */
static bool waits_for(const struct graph *g, node_id first, node_id last, int n_shared)
{
    const struct node *from = graph_node(g, first), *to = graph_node(g, last);
    bool found = false;
    bool *waits = NULL;
    if (mem_try_array(&waits, g->values.n, sizeof(*waits)) != OK)
        return true;
    for (int i = 0; i < from->n_out; i++)
        waits[from->out[i]] = true;
    for (node_id k = first + 1; k < last; k++) {
        const struct node *n = graph_node(g, k);
        bool any = false;
        for (int i = 0; i < n->n_in; i++)
            any |= n->in[i] != VALUE_NONE && waits[n->in[i]];
        for (int i = 0; any && i < n->n_out; i++)
            waits[n->out[i]] = true;
    }
    for (int i = n_shared; i < to->n_in; i++)
        found |= to->in[i] != VALUE_NONE && waits[to->in[i]];
    mem_free(waits);
    return found;
}

value_id adopted_value(const struct graph *g, value_id v)
{
    const struct value *x = graph_value(g, v);
    if (x->producer == NODE_NONE || !may_be_adopted(graph_node(g, x->producer)->op))
        return v;
    const struct node *forward = graph_node(g, x->producer);
    for (node_id k = x->producer + 1; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        if (op_get(n->op)->gives_outputs_of == op_get(forward->op) && same_inputs(forward, n))
            return waits_for(g, x->producer, k, forward->n_in) ? v : n->out[x->output];
    }
    return v;
}

enum status adopt_forward(struct graph *g)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_out; i++) {
            value_id adopted = adopted_value(g, n->out[i]);
            if (adopted != n->out[i])
                replace_value(g, n->out[i], adopted);
        }
    }
    return OK;
}
