/* emit_uses.c: who reads what, and when moved values leave: asked of the graph and the plan once,
 * before emission. */
#include "program/emit.h"

/* Will the plan make node n run a second time? */
static bool runs_again(const struct emitter *e, const struct node *n)
{
    bool again = false;
    for (int i = 0; i < n->n_out && n->pass == PASS_FORWARD; i++)
        again |= e->plan->treat[n->out[i]] == RECOMPUTE;
    return again;
}

/* A moved value of the forward pass leaves when that has used it last; one of the backward pass (a
 * gradient that waits for the norm of all) when only its last reader is left; a carried one when
 * only updates are left, which belong to the next step. */
static void note_touch(struct emitter *e, value_id root, node_id k)
{
    node_id before = e->touched_last[root];
    node_id producer = graph_value(e->g, root)->producer;
    bool forward = producer != NODE_NONE && graph_node(e->g, producer)->pass == PASS_FORWARD;
    enum pass here = graph_node(e->g, k)->pass;
    if (e->carried[root] ? here != PASS_UPDATE : forward && here == PASS_FORWARD)
        e->leaves_after[root] = k;
    else if (!e->carried[root] && !forward && before != k)
        e->leaves_after[root] = before;
    e->touched_last[root] = k;
}

static void find_departures(struct emitter *e)
{
    for (node_id k = 0; (size_t)k < e->g->nodes.n; k++) {
        const struct node *n = graph_node(e->g, k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE)
                note_touch(e, e->root[n->in[i]], k);
        }
        for (int i = 0; i < n->n_out; i++)
            note_touch(e, e->root[n->out[i]], k);
    }
}

static void find_readers(struct emitter *e)
{
    for (node_id k = 0; (size_t)k < e->g->nodes.n; k++) {
        const struct node *n = graph_node(e->g, k);
        bool later = n->pass != PASS_FORWARD || runs_again(e, n);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] == VALUE_NONE)
                continue;
            value_id root = e->root[n->in[i]];
            e->read[root] = true;
            e->read_later[root] |= later;
        }
    }
    for (value_id v = 0; (size_t)v < e->g->values.n; v++) {
        if (graph_value(e->g, v)->role == ROLE_GRADIENT)
            e->gradient[e->root[v]] = true;
    }
    for (size_t i = 0; i < e->g->outputs.n; i++) {
        value_id root = e->root[e->g->outputs.items[i].value];
        e->read[root] = e->read_later[root] = true;
    }
}

void emit_find_uses(struct emitter *e)
{
    find_readers(e);
    find_departures(e);
}
