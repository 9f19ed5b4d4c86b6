/* modules.c: the parts that a block consists of, read off its nodes. */
#include "base/alloc.h"
#include "plan/plan.h"

static bool is_in_block(const struct node *n)
{
    return n->pass == PASS_FORWARD && n->block != BLOCK_NONE;
}

/* The node of the same block that makes an input of n; NODE_NONE: none does. */
static node_id maker_of(const struct graph *g, const struct node *n, int i)
{
    node_id maker = n->in[i] == VALUE_NONE ? NODE_NONE : graph_value(g, n->in[i])->producer;
    return maker != NODE_NONE && graph_node(g, maker)->block == n->block ? maker : NODE_NONE;
}

/* What leads to an attention: from the last node to the first. */
static void spread_attention(const struct graph *g, enum module_kind *kinds)
{
    for (node_id k = (node_id)g->nodes.n - 1; k >= 0; k--) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; kinds[k] == MODULE_ATTENTION && i < n->n_in; i++) {
            node_id maker = maker_of(g, n, i);
            if (maker != NODE_NONE && kinds[maker] == MODULE_NONE)
                kinds[maker] = MODULE_ATTENTION;
        }
    }
}

/* What comes of a norm: from the first node to the last. */
static void spread_mlp(const struct graph *g, enum module_kind *kinds)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; is_in_block(n) && kinds[k] == MODULE_NONE && i < n->n_in; i++) {
            node_id maker = maker_of(g, n, i);
            if (maker != NODE_NONE && (kinds[maker] == MODULE_NORM || kinds[maker] == MODULE_MLP))
                kinds[k] = MODULE_MLP;
        }
    }
}

/* kinds: per node. */
static void find_kinds(const struct graph *g, enum module_kind *kinds)
{
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        kinds[k] = is_in_block(n) ? op_get(n->op)->module : MODULE_NONE;
    }
    spread_attention(g, kinds);
    spread_mlp(g, kinds);
}

enum status plan_find_modules(const struct graph *g, unsigned *modules)
{
    enum module_kind *kinds;
    *modules = 0;
    TRY(mem_try_array(&kinds, g->nodes.n + 1, sizeof(*kinds)));
    find_kinds(g, kinds);
    for (size_t k = 0; k < g->nodes.n; k++)
        *modules |= kinds[k] == MODULE_NONE ? 0 : 1u << kinds[k];
    mem_free(kinds);
    return OK;
}

enum status plan_recompute_modules(struct plan *p, const struct graph *g, unsigned modules)
{
    enum module_kind *kinds;
    TRY(mem_try_array(&kinds, g->nodes.n + 1, sizeof(*kinds)));
    find_kinds(g, kinds);
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        bool asked = kinds[k] != MODULE_NONE && (modules >> kinds[k] & 1);
        for (int i = 0; asked && i < n->n_out; i++) {
            if (plan_may_drop(p, g, n->out[i]))
                p->treat[n->out[i]] = RECOMPUTE;
        }
    }
    mem_free(kinds);
    return OK;
}
