/* order.c: in which order a section runs the nodes of its passes.
 *
 * That of the graph. What it runs late, of the step before, stands right before the first node of
 * this step that touches what it writes, or makes anew what it reads: so an updated weight is
 * fetched once, for its update and for the forward pass. The updates of one block stand together.
 */
#include "program/emit.h"

struct late {
    const struct graph *g;
    const struct section_rule *rule;
    node_id *touched; /* per root: the first node of this step that reads or writes it */
    node_id *anchor;  /* per late node: the node of this step that it stands before */
    node_id *first;   /* per node of this step: the first late node before it */
    node_id *next;    /* per late node: the next one that stands there too */
};

static bool is_late(const struct late *x, node_id k)
{
    return x->rule->late >> graph_node(x->g, k)->pass & 1u;
}

static bool is_current(const struct late *x, node_id k)
{
    return section_has(x->rule, graph_node(x->g, k));
}

/* The earlier of two places; NODE_NONE: anywhere. */
static node_id earlier(node_id a, node_id b)
{
    return a == NODE_NONE ? b : b == NODE_NONE ? a : MIN(a, b);
}

static void find_touches(struct late *x)
{
    for (size_t v = 0; v < x->g->values.n; v++)
        x->touched[v] = NODE_NONE;
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
        const struct node *n = graph_node(x->g, k);
        for (int i = 0; is_current(x, k) && i < n->n_in + n->n_out; i++) {
            value_id v = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
            value_id root = v == VALUE_NONE ? VALUE_NONE : value_root(x->g, v);
            if (root != VALUE_NONE && x->touched[root] == NODE_NONE)
                x->touched[root] = k;
        }
    }
}

static node_id place_of(const struct late *x, const struct node *n)
{
    node_id at = NODE_NONE;
    for (int i = 0; i < n->n_out; i++)
        at = earlier(at, x->touched[value_root(x->g, n->out[i])]);
    for (int i = 0; i < n->n_in; i++) {
        value_id root = n->in[i] == VALUE_NONE ? VALUE_NONE : value_root(x->g, n->in[i]);
        if (root != VALUE_NONE && graph_value(x->g, root)->producer != NODE_NONE)
            at = earlier(at, x->touched[root]);
    }
    return at;
}

/* Updates of one block go where the first of them has to be. */
static enum status join_blocks(struct late *x)
{
    node_id *of_block;
    int n_blocks = 1;
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++)
        n_blocks = MAX(n_blocks, graph_node(x->g, k)->block + 1);
    TRY(mem_try_array(&of_block, (size_t)n_blocks, sizeof(*of_block)));
    for (int b = 0; b < n_blocks; b++)
        of_block[b] = NODE_NONE;
    for (int round = 0; round < 2; round++) {
        for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
            int block = graph_node(x->g, k)->block;
            if (!is_late(x, k) || block == BLOCK_NONE)
                continue;
            if (round == 0)
                of_block[block] = earlier(of_block[block], x->anchor[k]);
            else
                x->anchor[k] = of_block[block];
        }
    }
    mem_free(of_block);
    return OK;
}

/* What another late node reads comes no later than that one. */
static void keep_order(struct late *x)
{
    for (node_id k = (node_id)x->g->nodes.n; k-- > 0;) {
        const struct node *n = graph_node(x->g, k);
        for (int i = 0; is_late(x, k) && i < n->n_in; i++) {
            node_id producer =
                n->in[i] == VALUE_NONE ? NODE_NONE : graph_value(x->g, n->in[i])->producer;
            if (producer != NODE_NONE && is_late(x, producer))
                x->anchor[producer] = earlier(x->anchor[producer], x->anchor[k]);
        }
    }
}

static void list_late(struct late *x)
{
    for (size_t k = 0; k < x->g->nodes.n; k++)
        x->first[k] = NODE_NONE;
    for (node_id k = (node_id)x->g->nodes.n; k-- > 0;) {
        if (!is_late(x, k) || x->anchor[k] == NODE_NONE)
            continue;
        x->next[k] = x->first[x->anchor[k]];
        x->first[x->anchor[k]] = k;
    }
}

static void write_order(const struct late *x, struct section_order *out)
{
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
        if (is_late(x, k) && x->anchor[k] == NODE_NONE)
            out->items[out->n++] = (struct ordered_node){k, k, true};
    }
    for (node_id k = 0; (size_t)k < x->g->nodes.n; k++) {
        if (!is_current(x, k))
            continue;
        for (node_id a = x->first[k]; a != NODE_NONE; a = x->next[a])
            out->items[out->n++] = (struct ordered_node){a, k, true};
        out->items[out->n++] = (struct ordered_node){k, k, false};
    }
}

static enum status order_current(const struct graph *g, const struct section_rule *rule,
                                 struct section_order *out)
{
    TRY(mem_try_array(&out->items, MAX(g->nodes.n, (size_t)1), sizeof(*out->items)));
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        if (section_has(rule, graph_node(g, k)))
            out->items[out->n++] = (struct ordered_node){k, k, false};
    }
    return OK;
}

static enum status order_with_late(const struct graph *g, const struct section_rule *rule,
                                   struct section_order *out)
{
    struct late x = {.g = g, .rule = rule};
    size_t n = MAX(g->nodes.n, (size_t)1);
    node_id *rows = NULL;
    enum status status;
    TRY_GOTO(mem_try_array(&out->items, n, sizeof(*out->items)), out);
    TRY_GOTO(mem_try_array(&x.touched, MAX(g->values.n, (size_t)1), sizeof(*x.touched)), out);
    TRY_GOTO(mem_try_array(&rows, 3 * n, sizeof(*rows)), out);
    x.anchor = rows;
    x.first = rows + n;
    x.next = rows + 2 * n;
    find_touches(&x);
    for (node_id k = 0; (size_t)k < g->nodes.n; k++)
        x.anchor[k] = is_late(&x, k) ? place_of(&x, graph_node(g, k)) : NODE_NONE;
    TRY_GOTO(join_blocks(&x), out);
    keep_order(&x);
    list_late(&x);
    write_order(&x, out);
out:
    mem_free(x.touched);
    mem_free(rows);
    return status;
}

enum status section_order(const struct graph *g, const struct section_rule *rule,
                          struct section_order *out)
{
    *out = (struct section_order){0};
    return rule->late ? order_with_late(g, rule, out) : order_current(g, rule, out);
}
