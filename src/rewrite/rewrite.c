/* rewrite.c: walks over the nodes and tries the rules of a stage on each. */
#include "rewrite/rewrite.h"

#include <string.h>

#include "base/log.h"
#include "rewrite/rewrite_internal.h"

struct row {
    const char *name;
    enum rewrite_stage stage;
    const char *why;
    rewrite_rule *apply;
};

static const struct row rules[] = {
#define RULE(name, stage, why) {#name, REWRITE_##stage, why, rewrite_##name},
#include "rewrite/rules.def"
#undef RULE
};

/* ---- questions ---------------------------------------------------------------------------- */

node_id rewrite_sole_source(const struct rewriting *r, value_id v, enum op_id op, node_id reader)
{
    const struct value *x = graph_value(r->g, v);
    if (x->producer == NODE_NONE || x->output != 0 || r->n_readers.items[v] != 1)
        return NODE_NONE;
    const struct node *n = graph_node(r->g, x->producer), *to = graph_node(r->g, reader);
    bool fits = n->op == op && n->pass == to->pass && n->block == to->block;
    return fits ? x->producer : NODE_NONE;
}

bool rewrite_has_input(const struct node *n, int i)
{
    return i < n->n_in && n->in[i] != VALUE_NONE;
}

bool rewrite_same_type(const struct graph *g, value_id a, value_id b)
{
    const struct value *x = graph_value(g, a), *y = graph_value(g, b);
    return x->dtype == y->dtype && shape_equal(&x->shape, &y->shape);
}

bool rewrite_exists_before(const struct graph *g, value_id v, node_id k)
{
    return graph_value(g, v)->producer < k; /* NODE_NONE comes before all */
}

bool rewrite_overwritten(const struct graph *g, value_id v, node_id first, node_id last)
{
    value_id root = value_root(g, v);
    for (node_id k = first; k < last; k++) {
        const struct node *n = graph_node(g, k);
        for (int i = 0; i < n->n_out; i++) {
            const struct alias_rule *a = node_alias(n, i);
            if (a && a->kind == ALIAS_UPDATE && value_root(g, n->in[a->in]) == root)
                return true;
        }
    }
    return false;
}

/* Does node n read what node a makes, itself or a view of it? */
static bool reads_from(const struct graph *g, const struct node *n, node_id a)
{
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE && (graph_value(g, n->in[i])->producer == a ||
                                       graph_value(g, value_view_root(g, n->in[i]))->producer == a))
            return true;
    }
    return false;
}

bool rewrite_can_move(const struct rewriting *r, node_id a, node_id k)
{
    const struct node *n = graph_node(r->g, a);
    if (r->moved[a] || r->moved[k] || r->dropped[a] || a >= k)
        return false;
    for (node_id other = a + 1; other <= k; other++) {
        if (!r->dropped[other] && reads_from(r->g, graph_node(r->g, other), a))
            return false;
    }
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE && rewrite_overwritten(r->g, n->in[i], a + 1, k + 1))
            return false;
    }
    return true;
}

/* ---- changes ------------------------------------------------------------------------------ */

static void count_reader(struct rewriting *r, value_id v, int change)
{
    if (v != VALUE_NONE)
        r->n_readers.items[v] += change;
}

enum status rewrite_set_input(struct rewriting *r, node_id k, int i, value_id v)
{
    struct node *n = graph_node(r->g, k);
    if (i >= n->n_in) {
        value_id *wider;
        TRY(pool_try(&r->g->pool, &wider, sizeof(value_id) * (size_t)(i + 1)));
        for (int j = 0; j <= i; j++)
            wider[j] = j < n->n_in ? n->in[j] : VALUE_NONE;
        n->in = wider;
        n->n_in = i + 1;
    }
    count_reader(r, n->in[i], -1);
    count_reader(r, v, 1);
    n->in[i] = v;
    while (n->n_in > op_get(n->op)->min_in && n->in[n->n_in - 1] == VALUE_NONE)
        n->n_in--;
    return OK;
}

enum status rewrite_set_op(struct rewriting *r, node_id k, enum op_id op, const struct attr *attrs)
{
    size_t n_bytes = sizeof(*attrs) * (size_t)op_get(op)->n_attrs;
    struct attr *own;
    TRY(pool_try(&r->g->pool, &own, n_bytes));
    memcpy(own, attrs, n_bytes);
    graph_node(r->g, k)->op = op;
    graph_node(r->g, k)->attrs = own;
    return OK;
}

void rewrite_absorb(struct rewriting *r, node_id k, node_id absorbed)
{
    struct node *n = graph_node(r->g, k);
    const struct node *a = graph_node(r->g, absorbed);
    value_id taken = a->out[0];
    struct value *before = graph_value(r->g, n->out[0]), *now = graph_value(r->g, taken);
    if (now->name[0] == '\0')
        now->name = before->name;
    before->name = "";
    before->producer = NODE_NONE; /* stays in the table, unused */
    now->producer = k;
    now->output = 0;
    n->out[0] = taken;
    for (int i = 0; i < a->n_in; i++)
        count_reader(r, a->in[i], -1);
    r->dropped[absorbed] = true;
}

enum status rewrite_add_output(struct rewriting *r, node_id k, value_id like, value_id *out)
{
    struct graph *g = r->g;
    struct value v = *graph_value(g, like);
    struct node *n = graph_node(g, k);
    value_id *wider;
    TRY(pool_try(&g->pool, &wider, sizeof(value_id) * (size_t)(n->n_out + 1)));
    TRY(graph_add_value(g, "", ROLE_ACTIVATION, v.dtype, v.shape, NULL, out));
    TRY(vec_push(&r->n_readers, 0)); /* nobody yet */
    memcpy(wider, n->out, sizeof(value_id) * (size_t)n->n_out);
    wider[n->n_out] = *out;
    graph_value(g, *out)->producer = k;
    graph_value(g, *out)->output = n->n_out;
    n->out = wider;
    n->n_out++;
    return OK;
}

void rewrite_move_behind(struct rewriting *r, node_id a, node_id k)
{
    while (r->follower[k] != NODE_NONE)
        k = r->follower[k];
    r->follower[k] = a;
    r->moved[a] = true;
}

/* ---- a rewriting ---------------------------------------------------------------------------- */

enum status rewriting_init(struct rewriting *r, struct graph *g)
{
    size_t n = MAX(g->nodes.n, (size_t)1);
    *r = (struct rewriting){.g = g};
    TRY(mem_try_array(&r->dropped, n, sizeof(*r->dropped)));
    TRY(mem_try_array(&r->moved, n, sizeof(*r->moved)));
    TRY(mem_try_array(&r->follower, n, sizeof(*r->follower)));
    for (size_t k = 0; k < n; k++)
        r->follower[k] = NODE_NONE;
    return rewriting_count_readers(r);
}

void rewriting_release(struct rewriting *r)
{
    vec_release(&r->n_readers);
    mem_free(r->dropped);
    mem_free(r->moved);
    mem_free(r->follower);
}

enum status rewriting_count_readers(struct rewriting *r)
{
    const struct graph *g = r->g;
    r->n_readers.n = 0;
    TRY(vec_reserve(&r->n_readers, MAX(g->values.n, (size_t)1)));
    r->n_readers.n = g->values.n;
    memset(r->n_readers.items, 0, g->values.n * sizeof(*r->n_readers.items));
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in && !r->dropped[k]; i++) {
            if (n->in[i] != VALUE_NONE)
                r->n_readers.items[n->in[i]]++;
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        r->n_readers.items[g->outputs.items[i].value]++;
    return OK;
}

enum status rewriting_settle(struct rewriting *r)
{
    node_id *kept;
    size_t n_kept = 0, n = r->g->nodes.n;
    TRY(mem_try_array(&kept, MAX(n, (size_t)1), sizeof(*kept)));
    for (node_id k = 0; (size_t)k < n; k++) {
        for (node_id j = r->moved[k] ? NODE_NONE : k; j != NODE_NONE; j = r->follower[j]) {
            if (!r->dropped[j])
                kept[n_kept++] = j;
        }
    }
    enum status status = graph_reorder(r->g, kept, n_kept);
    mem_free(kept);
    for (size_t k = 0; k < n; k++) {
        r->dropped[k] = r->moved[k] = false;
        r->follower[k] = NODE_NONE;
    }
    return status;
}

/* ---- the walk ----------------------------------------------------------------------------- */

/* One rule over the whole graph. */
static enum status apply_rule(struct rewriting *r, const struct row *rule)
{
    int n_applied = 0;
    TRY(rewriting_count_readers(r)); /* from here on the changes keep count */
    for (node_id k = 0; (size_t)k < r->g->nodes.n; k++) {
        bool applied = false;
        if (!r->dropped[k])
            TRY(rule->apply(r, k, &applied));
        n_applied += applied;
    }
    log_debug("%s: %s %d times (%s)", r->g->name, rule->name, n_applied, rule->why);
    return rewriting_settle(r);
}

enum status rewrite_apply(struct graph *g, enum rewrite_stage stage)
{
    struct rewriting r;
    enum status status;
    TRY_GOTO(rewriting_init(&r, g), out);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (rules[i].stage == stage)
            TRY_GOTO(apply_rule(&r, &rules[i]), out);
    }
out:
    rewriting_release(&r);
    return status;
}
