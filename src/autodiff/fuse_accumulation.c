/* fuse_accumulation.c: a sum into an existing gradient becomes part of the op that makes the term.
 *
 *     d = op(x, y)                        g' = op(x, y, g)      (in place in g's memory)
 *     g' = add(g, d)            ==>
 *
 * holds when op has an accumulate input, d has no other reader, and nothing else reads g. The same
 * rule folds `accumulate(acc, d)`, the sum over micro-steps. What it saves is one gradient-sized
 * buffer and two passes over it.
 */
#include "autodiff/autodiff.h"

#include <string.h>

static void count_uses(const struct graph *g, int32_t *n_readers)
{
    memset(n_readers, 0, g->values.n * sizeof(*n_readers));
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] != VALUE_NONE)
                n_readers[n->in[i]]++;
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        n_readers[g->outputs.items[i].value]++;
}

static bool same_type(const struct graph *g, value_id a, value_id b)
{
    const struct value *x = graph_value(g, a), *y = graph_value(g, b);
    return x->dtype == y->dtype && shape_equal(&x->shape, &y->shape);
}

/* Can `term`'s producer add into `sum` instead of node k doing it? */
static bool can_fold(const struct graph *g, const int32_t *n_readers, node_id k, value_id sum,
                     value_id term)
{
    const struct value *t = graph_value(g, term);
    if (t->producer == NODE_NONE || n_readers[term] != 1 || n_readers[sum] != 1)
        return false;
    const struct node *p = graph_node(g, t->producer);
    const struct op_def *d = op_get(p->op);
    if (d->accumulate_in < 0 || t->output != d->accumulate_out)
        return false;
    bool taken = d->accumulate_in < p->n_in && p->in[d->accumulate_in] != VALUE_NONE;
    bool exists_before = graph_value(g, sum)->producer < t->producer;
    return !taken && exists_before && same_type(g, sum, term) && t->producer < k &&
           value_view_root(g, sum) == sum;
}

/* Readers of a value come after the node that makes it. */
static void replace_readers(struct graph *g, int32_t *n_readers, node_id k, value_id from,
                            value_id to)
{
    for (size_t j = 0; j < g->outputs.n; j++) {
        if (g->outputs.items[j].value == from) {
            g->outputs.items[j].value = to;
            n_readers[from]--;
            n_readers[to]++;
        }
    }
    for (size_t j = (size_t)k + 1; j < g->nodes.n && n_readers[from] > 0; j++) {
        struct node *n = graph_node(g, (node_id)j);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i] == from) {
                n->in[i] = to;
                n_readers[from]--;
                n_readers[to]++;
            }
        }
    }
}

static enum status fold(struct graph *g, int32_t *n_readers, node_id k, value_id sum, value_id term)
{
    struct node *p = graph_node(g, graph_value(g, term)->producer);
    int at = op_get(p->op)->accumulate_in;
    if (p->n_in <= at) {
        value_id *wider;
        TRY(pool_try(&g->pool, &wider, sizeof(value_id) * (size_t)(at + 1)));
        for (int i = 0; i <= at; i++)
            wider[i] = i < p->n_in ? p->in[i] : VALUE_NONE;
        p->in = wider;
        p->n_in = at + 1;
    }
    p->in[at] = sum;
    n_readers[sum]++;

    value_id replaced = graph_node(g, k)->out[0];
    graph_value(g, term)->role = graph_value(g, replaced)->role;
    graph_value(g, sum)->role = graph_value(g, replaced)->role; /* one memory, one name for it */
    replace_readers(g, n_readers, k, replaced, term);
    return OK;
}

enum status fuse_accumulation(struct graph *g)
{
    int32_t *n_readers = NULL;
    node_id *kept = NULL;
    size_t n_kept = 0;
    enum status status = mem_try_array(&n_readers, MAX(g->values.n, (size_t)1), sizeof(int32_t));
    if (status != OK)
        return status;
    TRY_GOTO(mem_try_array(&kept, MAX(g->nodes.n, (size_t)1), sizeof(node_id)), out);

    count_uses(g, n_readers);
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        const struct node *n = graph_node(g, k);
        bool sums = n->op == OP_add || n->op == OP_accumulate;
        if (sums && can_fold(g, n_readers, k, n->in[0], n->in[1]))
            TRY_GOTO(fold(g, n_readers, k, n->in[0], n->in[1]), out);
        else
            kept[n_kept++] = k;
    }
    status = graph_reorder(g, kept, n_kept);
out:
    mem_free(n_readers);
    mem_free(kept);
    return status;
}
