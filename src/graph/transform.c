/* transform.c: passes over a whole graph: a new node order, dead code. */
#include "graph/graph.h"

#include <string.h>

enum status graph_reorder(struct graph *g, const node_id *order, size_t n)
{
    struct node *sorted;
    TRY(mem_try_array(&sorted, MAX(n, (size_t)1), sizeof(*sorted)));
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *old = graph_node(g, (node_id)k);
        for (int i = 0; i < old->n_out; i++)
            graph_value(g, old->out[i])->producer = NODE_NONE;
    }
    for (size_t k = 0; k < n; k++) {
        sorted[k] = *graph_node(g, order[k]);
        for (int i = 0; i < sorted[k].n_out; i++)
            graph_value(g, sorted[k].out[i])->producer = (node_id)k;
    }
    memcpy(g->nodes.items, sorted, n * sizeof(*sorted));
    g->nodes.n = n;
    mem_free(sorted);
    return OK;
}

/* Updates act on storage that outlives the step, so they are needed for their own sake. */
static bool has_effect(const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        const struct alias_rule *a = node_alias(n, i);
        if (!a || a->kind != ALIAS_UPDATE)
            continue;
        value_id r = value_root(g, n->out[i]);
        if (graph_value(g, r)->producer == NODE_NONE)
            return true;
    }
    return false;
}

enum status graph_eliminate_dead(struct graph *g)
{
    bool *needed = NULL;
    node_id *order = NULL;
    size_t n_kept = 0;
    enum status status = mem_try_array(&needed, MAX(g->values.n, (size_t)1), sizeof(*needed));
    if (status != OK)
        return status;
    TRY_GOTO(mem_try_array(&order, MAX(g->nodes.n, (size_t)1), sizeof(*order)), out);

    for (size_t i = 0; i < g->outputs.n; i++)
        needed[g->outputs.items[i].value] = true;
    for (size_t k = g->nodes.n; k-- > 0;) {
        const struct node *n = graph_node(g, (node_id)k);
        bool keep = has_effect(g, n);
        for (int i = 0; i < n->n_out; i++)
            keep |= needed[n->out[i]];
        if (!keep)
            continue;
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE)
                needed[n->in[i]] = true;
        }
        order[n_kept++] = (node_id)k;
    }
    for (size_t i = 0; i < n_kept / 2; i++) { /* collected backwards */
        node_id t = order[i];
        order[i] = order[n_kept - 1 - i];
        order[n_kept - 1 - i] = t;
    }
    status = graph_reorder(g, order, n_kept);
out:
    mem_free(needed);
    mem_free(order);
    return status;
}
