#include "search/decisions.h"

#include <stdio.h>

/* The blocks' place in an extent; what belongs to none comes last. */
static int place_of(const struct plan *p, int block)
{
    return block == BLOCK_NONE ? p->n_blocks : block;
}

/* The place of gradients that wait for the norm: the backward pass makes those of the last block
 * first, so they wait longest and have the most time to leave. */
static int waiting_place_of(const struct plan *p, int block)
{
    return block == BLOCK_NONE ? p->n_blocks : p->n_blocks - 1 - block;
}

static bool is_large(const struct decisions *d, const struct graph *g, value_id v)
{
    return value_bytes(g, v) >= MAX(d->small_bytes, (int64_t)1);
}

/* ---- homes ----------------------------------------------------------------------------------- */

static enum extent extent_of(enum role role)
{
    switch (role) {
    case ROLE_PARAMETER:
        return EXTENT_WEIGHTS;
    case ROLE_MASTER:
    case ROLE_STATE:
        return EXTENT_STATES;
    case ROLE_GRADIENT:
        return EXTENT_GRADIENTS;
    default:
        return EXTENT_COUNT;
    }
}

void decisions_apply_homes(const struct decisions *d, struct plan *p, const struct graph *g)
{
    p->ahead_bytes = p->behind_bytes = d->ring_bytes;
    p->slice_bytes = d->slice_bytes;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        const struct value *x = graph_value(g, v);
        enum extent e = extent_of(x->role);
        node_id reader = p->facts[v].first_reader;
        if (x->producer != NODE_NONE || e == EXTENT_COUNT || reader == NODE_NONE)
            continue;
        if (place_of(p, graph_node(g, reader)->block) < d->n[e] && is_large(d, g, v))
            p->home[v] = TIER_HOST;
    }
}

/* ---- what is saved --------------------------------------------------------------------------- */

static bool moves(const struct decisions *d, const struct plan *p, const struct node *n)
{
    return (n->pass == PASS_FORWARD && place_of(p, n->block) < d->n[EXTENT_MOVED]) ||
           (n->pass == PASS_BACKWARD && waiting_place_of(p, n->block) < d->n[EXTENT_GRADIENTS]);
}

static void apply_moves(const struct decisions *d, struct plan *p, const struct graph *g)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; moves(d, p, n) && i < n->n_out; i++) {
            value_id v = n->out[i];
            if (p->treat[v] == KEEP && is_large(d, g, v) && plan_allows(p, g, v, MOVE))
                plan_move(p, v, TIER_HOST);
        }
    }
}

void decisions_apply(const struct decisions *d, struct plan *plan, const struct graph *g)
{
    if (d->recompute_cheap)
        plan_recompute_cheap(plan, g);
    for (int b = 0; b < plan->n_blocks; b++) {
        if (b < d->n[EXTENT_RECOMPUTED] || block_set_has(&d->recompute, b))
            plan_recompute_block(plan, g, b);
    }
    decisions_apply_homes(d, plan, g);
    apply_moves(d, plan, g);
    plan->defer_updates = d->defer_updates && plan_may_defer(plan, g);
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *extent_name(enum extent e)
{
    static const char *const names[EXTENT_COUNT] = {
        [EXTENT_MOVED] = "activations_on_host", [EXTENT_RECOMPUTED] = "recomputed",
        [EXTENT_STATES] = "optimizer_on_host",  [EXTENT_GRADIENTS] = "gradients_on_host",
        [EXTENT_WEIGHTS] = "weights_on_host",
    };
    return names[e];
}

bool decisions_copy(const struct decisions *d)
{
    return d->n[EXTENT_MOVED] || d->n[EXTENT_STATES] || d->n[EXTENT_GRADIENTS] ||
           d->n[EXTENT_WEIGHTS];
}

void decisions_add_text(const struct decisions *d, int n_blocks, struct str *out)
{
    static const char *const words[EXTENT_COUNT] = {
        [EXTENT_MOVED] = "saved activations of %s on the host",
        [EXTENT_RECOMPUTED] = "%s recomputed",
        [EXTENT_STATES] = "optimizer states of %s on the host",
        [EXTENT_GRADIENTS] = "gradients of %s on the host",
        [EXTENT_WEIGHTS] = "weights of %s on the host",
    };
    char ring[BYTES_TEXT];
    const char *between = "";
    for (int e = 0; e < EXTENT_COUNT; e++) {
        char which[48];
        int n = e == EXTENT_RECOMPUTED ? MIN(d->n[e], n_blocks) : d->n[e];
        if (n == 0)
            continue;
        if (n > n_blocks)
            (void)snprintf(which, sizeof(which), "all blocks, embedding and head");
        else if (n == n_blocks)
            (void)snprintf(which, sizeof(which), "all %d blocks", n_blocks);
        else
            (void)snprintf(which, sizeof(which), "%d of %d blocks", n, n_blocks);
        str_add(out, between);
        str_addf(out, words[e], which);
        between = ", ";
    }
    if (d->defer_updates) {
        str_addf(out, "%supdates in the next forward pass", between);
        between = ", ";
    }
    if (decisions_copy(d) && d->ring_bytes > 0)
        str_addf(out, "%s%s fetched ahead", between, format_bytes(ring, d->ring_bytes));
}
