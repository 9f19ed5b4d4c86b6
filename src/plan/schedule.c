/* schedule.c: where updates go in the order of nodes.
 *
 * An update may run as soon as its operands exist and nobody will read what it overwrites: right
 * after its gradient is complete, in the last micro-step where there are several (unless clipping
 * needs the norm of all gradients first: then the data dependence itself says so). The updates of
 * one block wait for each other, so that they stand together and can be handed to the device
 * together, whichever ops they are: a block's gradients are alive at once, and never those of two
 * blocks for long.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

struct ready {
    int64_t at; /* position in the old order after which the node may run */
    node_id node;
};

static int by_position(const void *a, const void *b)
{
    const struct ready *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* What follows the gradients moves; the other passes stay as they are. */
static bool is_movable(const struct node *n)
{
    return n->pass == PASS_NORM || n->pass == PASS_UPDATE;
}

/* Node k reads v; and what v is made of, where that happens again for k (RECOMPUTE_ALWAYS). */
static void note_read(const struct graph *g, value_id v, int64_t k, int64_t *last_read)
{
    node_id producer = graph_value(g, v)->producer;
    last_read[value_view_root(g, v)] = k;
    if (producer == NODE_NONE)
        return;
    const struct node *maker = graph_node(g, producer);
    for (int i = 0; op_get(maker->op)->recompute == RECOMPUTE_ALWAYS && i < maker->n_in; i++) {
        if (maker->in[i] != VALUE_NONE)
            last_read[value_view_root(g, maker->in[i])] = k;
    }
}

/* last_read[v]: last node reading v's memory through any view. */
static void find_last_reads(const struct graph *g, int64_t *last_read)
{
    for (size_t v = 0; v < g->values.n; v++)
        last_read[v] = -1;
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in && !is_movable(n); i++) {
            if (n->in[i] != VALUE_NONE)
                note_read(g, n->in[i], (int64_t)k, last_read);
        }
    }
}

static int64_t earliest(const struct graph *g, const struct node *n, const int64_t *last_read,
                        const int64_t *position)
{
    int64_t at = -1;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        node_id producer = graph_value(g, n->in[i])->producer;
        if (producer != NODE_NONE)
            at = MAX(at, position[producer]);
    }
    for (int i = 0; i < n->n_out; i++) {
        const struct alias_rule *a = node_alias(n, i);
        if (a && a->kind == ALIAS_UPDATE)
            at = MAX(at, last_read[value_view_root(g, n->in[a->in])]);
    }
    return at;
}

/* Places of nodes that stand together: of one block, those that write parameters, and of the others
 * (sums of squares) those of one op. */
enum { WRITERS = OP_COUNT, N_KINDS };

struct groups {
    int64_t *at; /* [n_blocks, N_KINDS] */
    int n_blocks;
};

static enum status groups_init(struct groups *s, const struct graph *g)
{
    *s = (struct groups){0};
    for (size_t k = 0; k < g->nodes.n; k++)
        s->n_blocks = MAX(s->n_blocks, graph_node(g, (node_id)k)->block + 1);
    size_t n = (size_t)s->n_blocks * N_KINDS;
    TRY(mem_try_array(&s->at, MAX(n, (size_t)1), sizeof(*s->at)));
    for (size_t i = 0; i < n; i++)
        s->at[i] = -1;
    return OK;
}

static bool writes_parameter(const struct graph *g, const struct node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        const struct alias_rule *a = node_alias(n, i);
        if (a && a->kind == ALIAS_UPDATE &&
            graph_value(g, value_root(g, n->in[a->in]))->role == ROLE_PARAMETER)
            return true;
    }
    return false;
}

static int64_t *group_of(const struct groups *s, const struct graph *g, const struct node *n)
{
    if (!is_movable(n) || n->block == BLOCK_NONE)
        return NULL;
    size_t kind = writes_parameter(g, n) ? (size_t)WRITERS : (size_t)n->op;
    return &s->at[(size_t)n->block * N_KINDS + kind];
}

/* Once alone, to see when the last of each group is ready, then with its group. */
static void place_nodes(const struct graph *g, const struct groups *groups,
                        const int64_t *last_read, int64_t *position)
{
    for (int round = 0; round < 2; round++) {
        for (size_t k = 0; k < g->nodes.n; k++) {
            const struct node *n = graph_node(g, (node_id)k);
            int64_t *group = group_of(groups, g, n);
            position[k] = is_movable(n) ? earliest(g, n, last_read, position) : (int64_t)k;
            if (group && round == 0)
                *group = MAX(*group, position[k]);
            else if (group)
                position[k] = MAX(*group, position[k]);
        }
    }
}

enum status schedule_updates_early(struct graph *g)
{
    int64_t *last_read = NULL, *position = NULL;
    struct groups groups = {0};
    struct ready *ready = NULL;
    node_id *order = NULL;
    size_t n = g->nodes.n;
    enum status status = mem_try_array(&last_read, MAX(g->values.n, (size_t)1), sizeof(int64_t));
    if (status != OK)
        return status;
    TRY_GOTO(groups_init(&groups, g), out);
    TRY_GOTO(mem_try_array(&position, MAX(n, (size_t)1), sizeof(int64_t)), out);
    TRY_GOTO(mem_try_array(&ready, MAX(n, (size_t)1), sizeof(*ready)), out);
    TRY_GOTO(mem_try_array(&order, MAX(n, (size_t)1), sizeof(*order)), out);

    find_last_reads(g, last_read);
    place_nodes(g, &groups, last_read, position);
    for (size_t k = 0; k < n; k++)
        ready[k] = (struct ready){position[k], (node_id)k};
    qsort(ready, n, sizeof(*ready), by_position);
    for (size_t k = 0; k < n; k++)
        order[k] = ready[k].node;
    status = graph_reorder(g, order, n);
out:
    mem_free(groups.at);
    mem_free(last_read);
    mem_free(position);
    mem_free(ready);
    mem_free(order);
    return status;
}
