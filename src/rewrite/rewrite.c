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
    if (x->producer == NODE_NONE || x->output != 0 || r->n_readers[v] != 1)
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

/* ---- changes ------------------------------------------------------------------------------ */

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
    n->in[i] = v;
    while (n->n_in > op_get(n->op)->min_in && n->in[n->n_in - 1] == VALUE_NONE)
        n->n_in--;
    return OK;
}

void rewrite_absorb(struct rewriting *r, node_id k, node_id absorbed)
{
    struct node *n = graph_node(r->g, k);
    value_id taken = graph_node(r->g, absorbed)->out[0];
    struct value *before = graph_value(r->g, n->out[0]), *now = graph_value(r->g, taken);
    if (now->name[0] == '\0')
        now->name = before->name;
    before->name = "";
    before->producer = NODE_NONE; /* stays in the table, unused */
    now->producer = k;
    now->output = 0;
    n->out[0] = taken;
    r->dropped[absorbed] = true;
}

/* ---- the walk ----------------------------------------------------------------------------- */

static void count_readers(struct rewriting *r)
{
    const struct graph *g = r->g;
    memset(r->n_readers, 0, g->values.n * sizeof(*r->n_readers));
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in && !r->dropped[k]; i++) {
            if (n->in[i] != VALUE_NONE)
                r->n_readers[n->in[i]]++;
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        r->n_readers[g->outputs.items[i].value]++;
}

/* One rule over the whole graph. */
static enum status apply_rule(struct rewriting *r, const struct row *rule)
{
    int n_applied = 0;
    count_readers(r);
    for (node_id k = 0; (size_t)k < r->g->nodes.n; k++) {
        bool applied = false;
        if (!r->dropped[k])
            TRY(rule->apply(r, k, &applied));
        if (applied) {
            n_applied++;
            count_readers(r);
        }
    }
    log_debug("%s: %s %d times (%s)", r->g->name, rule->name, n_applied, rule->why);
    return OK;
}

static enum status keep_the_rest(struct rewriting *r)
{
    node_id *kept;
    size_t n_kept = 0;
    TRY(mem_try_array(&kept, MAX(r->g->nodes.n, (size_t)1), sizeof(*kept)));
    for (node_id k = 0; (size_t)k < r->g->nodes.n; k++) {
        if (!r->dropped[k])
            kept[n_kept++] = k;
    }
    enum status status = graph_reorder(r->g, kept, n_kept);
    mem_free(kept);
    return status;
}

enum status rewrite_apply(struct graph *g, enum rewrite_stage stage)
{
    struct rewriting r = {.g = g};
    enum status status;
    TRY_GOTO(mem_try_array(&r.n_readers, MAX(g->values.n, (size_t)1), sizeof(*r.n_readers)), out);
    TRY_GOTO(mem_try_array(&r.dropped, MAX(g->nodes.n, (size_t)1), sizeof(*r.dropped)), out);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (rules[i].stage == stage)
            TRY_GOTO(apply_rule(&r, &rules[i]), out);
    }
    status = keep_the_rest(&r);
out:
    mem_free(r.n_readers);
    mem_free(r.dropped);
    return status;
}
