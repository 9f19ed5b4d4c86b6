/* check.c: the structural invariants of a graph.
 *
 * 1. Every input exists: it has no producer, or its producer comes earlier in the order.
 * 2. Every output's producer and output index point back at its node.
 * 3. Dtypes and shapes are what inference gives.
 * 4. A value overwritten by an update is never read after the node that overwrites it.
 */
#include "graph/graph.h"

static enum status check_operands(const struct graph *g, node_id k)
{
    const struct node *n = graph_node(g, k);
    const char *name = op_get(n->op)->name;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        if (n->in[i] < 0 || (size_t)n->in[i] >= g->values.n)
            return FAIL(ERR_INTERNAL, "node %d (%s): input %d does not exist", k, name, i);
        if (graph_value(g, n->in[i])->producer >= k)
            return FAIL(ERR_INTERNAL, "node %d (%s): input %d is produced later", k, name, i);
    }
    for (int i = 0; i < n->n_out; i++) {
        const struct value *v = graph_value(g, n->out[i]);
        if (v->producer != k || v->output != i)
            return FAIL(ERR_INTERNAL, "node %d (%s): output %d has another producer", k, name, i);
    }
    return OK;
}

static enum status check_inferred(const struct graph *g, node_id k)
{
    const struct node *n = graph_node(g, k);
    struct tensor *in, out[MAX_OUTPUTS] = {{0}};
    TRY(mem_try_array(&in, (size_t)MAX(n->n_in, 1), sizeof(*in)));
    struct op_call call;
    node_call(g, n, in, out, &call);
    struct tensor again[MAX_OUTPUTS] = {{0}};
    call.out = again;
    enum status status = op_get(n->op)->infer(&call);
    mem_free(in);
    TRY(status);
    for (int i = 0; i < n->n_out; i++) {
        if (again[i].dtype != out[i].dtype || !shape_equal(&again[i].shape, &out[i].shape))
            return FAIL(ERR_INTERNAL, "node %d (%s): output %d is not as inferred", k,
                        op_get(n->op)->name, i);
    }
    return OK;
}

/* overwritten[v]: the node that overwrote v's storage, once one did. */
static enum status check_updates(const struct graph *g, node_id *overwritten)
{
    for (size_t v = 0; v < g->values.n; v++)
        overwritten[v] = NODE_NONE;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] == VALUE_NONE)
                continue;
            value_id storage = value_view_root(g, n->in[i]);
            if (overwritten[storage] != NODE_NONE)
                return FAIL(ERR_INTERNAL, "node %d (%s): input %d was overwritten by node %d", k,
                            op_get(n->op)->name, i, overwritten[storage]);
        }
        for (int i = 0; i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            if (a && a->kind == ALIAS_UPDATE)
                overwritten[value_view_root(g, n->in[a->in])] = k;
        }
    }
    return OK;
}

enum status graph_check(const struct graph *g)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        TRY(check_operands(g, k));
        TRY(check_inferred(g, k));
    }
    node_id *overwritten;
    TRY(mem_try_array(&overwritten, MAX(g->values.n, (size_t)1), sizeof(*overwritten)));
    enum status status = check_updates(g, overwritten);
    mem_free(overwritten);
    return status;
}
