#include "plan/group.h"

#include <stdio.h>
#include <string.h>

struct grouping {
    const struct graph *single;
    struct graph *g;
    int n;
    value_id *maps;         /* [n, values of single]: what a micro-batch has in a value's place */
    value_id *found, *left; /* per root that micro-batches update: its first and last version */
};

int group_size(const struct graph *g)
{
    int n = 1;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++)
        n = MAX(n, graph_node(g, k)->micro + 1);
    return n;
}

const char *group_input_name(char buffer[GROUP_NAME], const char *name, int m)
{
    if (m == 0)
        return name;
    snprintf(buffer, GROUP_NAME, "%s.%d", name, m);
    return buffer;
}

static bool is_repeated(const struct node *n)
{
    return n->pass == PASS_FORWARD || n->pass == PASS_BACKWARD;
}

static value_id *map_of(const struct grouping *x, int m)
{
    return x->maps + (size_t)m * x->single->values.n;
}

/* ---- values ---------------------------------------------------------------------------------- */

static enum status copy_value(struct grouping *x, int m, value_id v)
{
    struct value copy = *graph_value(x->single, v);
    char name[GROUP_NAME];
    if (copy.role == ROLE_INPUT && copy.producer == NODE_NONE)
        copy.name = pool_strdup(&x->g->pool, group_input_name(name, copy.name, m));
    map_of(x, m)[v] = (value_id)x->g->values.n;
    TRY(pool_status(&x->g->pool));
    return vec_push(&x->g->values, copy);
}

/* Inputs that micro-batches read, and what they make. */
static enum status copy_values(struct grouping *x, int m)
{
    value_id *map = map_of(x, m);
    for (value_id v = 0; (size_t)v < x->single->values.n; v++)
        map[v] = v;
    for (node_id k = 0; (size_t)k < x->single->nodes.n; k++) {
        const struct node *n = graph_node(x->single, k);
        for (int i = 0; is_repeated(n) && i < n->n_in; i++) {
            value_id v = n->in[i];
            if (v == VALUE_NONE || map[v] != v)
                continue;
            const struct value *in = graph_value(x->single, v);
            if (in->producer == NODE_NONE && in->role == ROLE_INPUT)
                TRY(copy_value(x, m, v));
        }
        for (int i = 0; is_repeated(n) && i < n->n_out; i++)
            TRY(copy_value(x, m, n->out[i]));
    }
    return OK;
}

/* What outlives a micro-batch (a sum, running statistics): the version that it finds, and the one
 * that it leaves. */
static void find_chains(struct grouping *x)
{
    const struct graph *g = x->single;
    for (value_id v = 0; (size_t)v < g->values.n; v++)
        x->found[v] = x->left[v] = VALUE_NONE;
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; is_repeated(n) && i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            value_id root = value_root(g, n->out[i]);
            if (!a || a->kind != ALIAS_UPDATE || graph_value(g, root)->producer != NODE_NONE)
                continue;
            if (x->found[root] == VALUE_NONE)
                x->found[root] = n->in[a->in];
            x->left[root] = n->out[i];
        }
    }
}

/* Micro-batch m goes on where the one before it left things. */
static void chain_values(struct grouping *x, int m)
{
    for (value_id root = 0; (size_t)root < x->single->values.n; root++) {
        if (x->found[root] != VALUE_NONE)
            map_of(x, m)[x->found[root]] = map_of(x, m - 1)[x->left[root]];
    }
}

static enum status make_values(struct grouping *x)
{
    const struct graph *g = x->single;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        map_of(x, 0)[v] = v;
        TRY(vec_push(&x->g->values, *graph_value(g, v)));
    }
    find_chains(x);
    for (int m = 1; m < x->n; m++) {
        TRY(copy_values(x, m));
        chain_values(x, m);
    }
    return OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Of what micro-batches make, those that run once (the norm, updates, the host) see the last's. */
static value_id as_seen(const struct grouping *x, value_id v)
{
    node_id producer = v == VALUE_NONE ? NODE_NONE : graph_value(x->single, v)->producer;
    bool made = producer != NODE_NONE && is_repeated(graph_node(x->single, producer));
    return made ? map_of(x, x->n - 1)[v] : v;
}

static enum status add_node(struct grouping *x, node_id k, int m)
{
    struct node n = *graph_node(x->single, k);
    bool repeated = is_repeated(&n);
    const value_id *map = map_of(x, m), *in = n.in, *out = n.out;
    TRY(pool_try(&x->g->pool, &n.in, sizeof(*n.in) * (size_t)MAX(n.n_in, 1)));
    TRY(pool_try(&x->g->pool, &n.out, sizeof(*n.out) * (size_t)n.n_out));
    for (int i = 0; i < n.n_in; i++)
        n.in[i] = in[i] == VALUE_NONE ? VALUE_NONE : repeated ? map[in[i]] : as_seen(x, in[i]);
    for (int i = 0; i < n.n_out; i++) {
        n.out[i] = repeated ? map[out[i]] : out[i];
        graph_value(x->g, n.out[i])->producer = (node_id)x->g->nodes.n;
    }
    n.micro = repeated ? m : 0;
    return vec_push(&x->g->nodes, n);
}

static bool is_same_part(const struct node *a, const struct node *b)
{
    return a->block == b->block && (a->pass == PASS_FORWARD) == (b->pass == PASS_FORWARD);
}

/* The end of what node k's block does from it on; what runs once may stand between. */
static node_id block_end(const struct graph *g, node_id k)
{
    node_id end = k + 1;
    for (node_id i = end; (size_t)i < g->nodes.n; i++) {
        const struct node *n = graph_node(g, i);
        if (is_repeated(n) && !is_same_part(n, graph_node(g, k)))
            break;
        end = i + 1;
    }
    return end;
}

/* The end of the block that updates last what node k updates (running statistics of layers that
 * several blocks share): the next micro-batch goes on with that. */
static node_id chain_end(const struct grouping *x, node_id k)
{
    const struct node *n = graph_node(x->single, k);
    node_id end = k + 1;
    for (int i = 0; is_repeated(n) && i < n->n_out; i++) {
        value_id left = x->left[value_root(x->single, n->out[i])];
        if (left == VALUE_NONE)
            continue;
        node_id last = block_end(x->single, graph_value(x->single, left)->producer);
        end = MAX(end, last);
    }
    return end;
}

/* The end of the part that begins with node k: a block, or as many as chains hold together. */
static node_id part_end(const struct grouping *x, node_id k)
{
    node_id end = block_end(x->single, k);
    for (; k < end; k++) {
        node_id chain = chain_end(x, k);
        end = MAX(end, chain);
    }
    return end;
}

/* Each micro-batch in turn, and with the last one what stands between its nodes. */
static enum status add_part(struct grouping *x, node_id first, node_id end)
{
    for (int m = 0; m < x->n; m++) {
        for (node_id k = first; k < end; k++) {
            if (is_repeated(graph_node(x->single, k)) || m == x->n - 1)
                TRY(add_node(x, k, m));
        }
    }
    return OK;
}

/* What is made at the beginning for nodes [first, end): a sum is cleared where it is first added
 * to. */
static enum status add_beginnings(struct grouping *x, node_id first, node_id end)
{
    const struct graph *g = x->single;
    for (node_id k = first; k < end; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_in; i++) {
            node_id maker = n->in[i] == VALUE_NONE ? NODE_NONE : graph_value(g, n->in[i])->producer;
            bool begins = maker != NODE_NONE && graph_node(g, maker)->pass == PASS_BEGIN;
            if (!begins || graph_value(x->g, n->in[i])->producer != NODE_NONE)
                continue;
            TRY(add_beginnings(x, maker, maker + 1));
            TRY(add_node(x, maker, 0));
        }
    }
    return OK;
}

static enum status make_nodes(struct grouping *x)
{
    const struct graph *g = x->single;
    for (value_id v = 0; (size_t)v < x->g->values.n; v++)
        graph_value(x->g, v)->producer = NODE_NONE;
    for (node_id k = 0; (size_t)k < g->nodes.n;) {
        node_id end = is_repeated(graph_node(g, k)) ? part_end(x, k) : k + 1;
        bool later = graph_node(g, k)->pass == PASS_BEGIN;
        if (!later) {
            TRY(add_beginnings(x, k, end));
            TRY(add_part(x, k, end));
        }
        k = end;
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        const struct graph_output *o = &g->outputs.items[i];
        struct graph_output seen = {o->name, as_seen(x, o->value)};
        TRY(vec_push(&x->g->outputs, seen));
    }
    return OK;
}

enum status group_graph(struct graph **out, const struct graph *single, int n)
{
    struct grouping x = {.single = single, .n = n};
    size_t n_values = MAX(single->values.n, (size_t)1);
    enum status status;
    *out = NULL;
    TRY(graph_new(&x.g, single->name));
    TRY_GOTO(mem_try_array(&x.maps, ((size_t)n + 2) * n_values, sizeof(*x.maps)), out);
    x.found = x.maps + (size_t)n * single->values.n;
    x.left = x.found + single->values.n;
    TRY_GOTO(make_values(&x), out);
    TRY_GOTO(make_nodes(&x), out);
    status = graph_check(x.g);
out:
    mem_free(x.maps);
    if (status == OK)
        *out = x.g;
    else
        graph_free(x.g);
    return status;
}
