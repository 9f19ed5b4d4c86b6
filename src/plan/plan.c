#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum status plan_init(struct plan *p, const struct graph *g, int64_t n_micro)
{
    *p = (struct plan){.n_micro = n_micro};
    pool_init(&p->pool);
    TRY(pool_try(&p->pool, &p->treat, MAX(g->values.n, (size_t)1) * sizeof(*p->treat)));
    TRY(pool_try(&p->pool, &p->home, MAX(g->values.n, (size_t)1) * sizeof(*p->home)));
    for (size_t k = 0; k < g->nodes.n; k++)
        p->n_blocks = MAX(p->n_blocks, graph_node(g, (node_id)k)->block + 1);
    return OK;
}

void plan_release(struct plan *p)
{
    pool_release(&p->pool);
    *p = (struct plan){0};
}

/* A forward value of block b that only block b reads: droppable once the forward pass has left the
 * block. What other blocks' forward nodes read stays, or recomputing them would reach back. */
static bool stays_inside(const struct graph *g, value_id v, int block)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->pass != PASS_FORWARD || n->block == block)
            continue;
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE && value_view_root(g, n->in[i]) == v)
                return false;
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        if (value_view_root(g, g->outputs.items[i].value) == v)
            return false;
    }
    return true;
}

static void treat_block(struct plan *p, const struct graph *g, int block, enum treatment t)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->pass != PASS_FORWARD || n->block != block)
            continue;
        if (t == RECOMPUTE && op_get(n->op)->recompute == RECOMPUTE_NEVER)
            continue;
        for (int i = 0; i < n->n_out; i++) {
            if (value_view_root(g, n->out[i]) == n->out[i] && stays_inside(g, n->out[i], block))
                p->treat[n->out[i]] = t;
        }
    }
}

void plan_recompute_block(struct plan *p, const struct graph *g, int block)
{
    treat_block(p, g, block, RECOMPUTE);
    p->n_blocks_recomputed++;
}

void plan_move_block(struct plan *p, const struct graph *g, int block)
{
    treat_block(p, g, block, MOVE);
}

/* Needed in memory until the backward pass whatever we decide: storage, or read by a gradient. */
static bool saved_anyway(const struct graph *g, value_id v)
{
    v = value_view_root(g, v);
    if (graph_value(g, v)->producer == NODE_NONE)
        return true;
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in && n->pass == PASS_BACKWARD; i++) {
            if (n->in[i] != VALUE_NONE && value_view_root(g, n->in[i]) == v)
                return true;
        }
    }
    return false;
}

static bool inputs_saved_anyway(const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE && !saved_anyway(g, n->in[i]))
            return false;
    }
    return true;
}

void plan_recompute_cheap(struct plan *p, const struct graph *g)
{
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        if (n->pass != PASS_FORWARD || op_get(n->op)->recompute != RECOMPUTE_CHEAP ||
            !inputs_saved_anyway(g, n))
            continue;
        for (int i = 0; i < n->n_out; i++) {
            bool own_memory = value_view_root(g, n->out[i]) == n->out[i];
            if (own_memory && p->treat[n->out[i]] == KEEP && stays_inside(g, n->out[i], n->block))
                p->treat[n->out[i]] = RECOMPUTE;
        }
    }
}

void plan_set_home(struct plan *p, const struct graph *g, enum role role, enum tier tier)
{
    for (size_t v = 0; v < g->values.n; v++) {
        const struct value *x = graph_value(g, (value_id)v);
        if (x->producer == NODE_NONE && x->role == role)
            p->home[v] = tier;
    }
}

enum status plan_apply_checkpointing(struct plan *p, const struct graph *g, const char *spec,
                                     int n_blocks)
{
    int on;
    if (parse_bool(spec, &on)) {
        for (int b = 0; on && b < n_blocks; b++)
            plan_recompute_block(p, g, b);
        return OK;
    }
    for (const char *at = spec; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end == at)
            return FAIL(ERR_CONFIG,
                        "gradient_checkpointing: '%s' is not true, false or a list of "
                        "blocks such as 0-3,7",
                        spec);
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
        }
        if (end == at || (*end != ',' && *end != '\0') || first < 0 || last < first ||
            last >= n_blocks)
            return FAIL(ERR_CONFIG,
                        "gradient_checkpointing: '%s' is not a list of blocks between 0 "
                        "and %d",
                        spec, n_blocks - 1);
        for (long b = first; b <= last; b++)
            plan_recompute_block(p, g, (int)b);
        at = *end == ',' ? end + 1 : end;
    }
    return OK;
}
