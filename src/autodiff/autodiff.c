/* autodiff.c: reverse mode.
 *
 * Walks the forward nodes backwards once. Each op's grad function turns the gradients of its
 * outputs into nodes that compute the gradients of its inputs; contributions to one value are added
 * in the order they appear. Only what `wanted` depends on is differentiated.
 */
#include "autodiff/autodiff.h"

#include <string.h>

#include "graph/builder.h"

struct tape {
    struct graph *g;
    struct builder b;
    bool *needs_grad; /* per forward value: some wanted value feeds it */
    value_id *grad;   /* per forward value: its gradient so far */
    size_t n_values;  /* of the forward graph */
    size_t max_in;    /* widest forward node */
    int n_shortened;  /* blocks, from the first: cheap gradients do */
    bool *is_wanted;  /* per forward value */
    bool *wants;      /* scratch, max_in */
    value_id *d_in;   /* scratch, max_in */
};

static enum status tape_init(struct tape *t, struct graph *g)
{
    *t = (struct tape){.g = g, .n_values = g->values.n, .max_in = 1};
    builder_init(&t->b, g);
    t->b.pass = PASS_BACKWARD;
    for (size_t k = 0; k < g->nodes.n; k++)
        t->max_in = MAX(t->max_in, (size_t)graph_node(g, (node_id)k)->n_in);
    TRY(mem_try_array(&t->needs_grad, t->n_values, sizeof(bool)));
    TRY(mem_try_array(&t->is_wanted, t->n_values, sizeof(bool)));
    TRY(mem_try_array(&t->grad, t->n_values, sizeof(value_id)));
    TRY(mem_try_array(&t->wants, t->max_in, sizeof(bool)));
    TRY(mem_try_array(&t->d_in, t->max_in, sizeof(value_id)));
    for (size_t i = 0; i < t->n_values; i++)
        t->grad[i] = VALUE_NONE;
    return OK;
}

static void tape_release(struct tape *t)
{
    mem_free(t->needs_grad);
    mem_free(t->is_wanted);
    mem_free(t->grad);
    mem_free(t->wants);
    mem_free(t->d_in);
}

static void mark_required(struct tape *t, const value_id *wanted, size_t n_wanted)
{
    for (size_t i = 0; i < n_wanted; i++)
        t->needs_grad[wanted[i]] = t->is_wanted[wanted[i]] = true;
    for (size_t k = 0; k < t->g->nodes.n; k++) {
        const struct node *n = graph_node(t->g, (node_id)k);
        bool any = false;
        for (int i = 0; i < n->n_in; i++) {
            bool blocked = mask_has(op_get(n->op)->no_grad_inputs, i);
            any |= n->in[i] != VALUE_NONE && !blocked && t->needs_grad[n->in[i]];
        }
        for (int i = 0; i < n->n_out; i++)
            t->needs_grad[n->out[i]] |= any;
    }
}

static bool wants_gradient(const struct tape *t, const struct node *n, int i)
{
    bool blocked = mask_has(op_get(n->op)->no_grad_inputs, i);
    return !blocked && n->in[i] != VALUE_NONE && t->needs_grad[n->in[i]] &&
           dtype_is_float(graph_value(t->g, n->in[i])->dtype);
}

static void add_contribution(struct tape *t, value_id v, value_id d)
{
    if (d == VALUE_NONE)
        return;
    if (t->grad[v] == VALUE_NONE)
        t->grad[v] = d;
    else
        t->grad[v] = build(&t->b, OP_add, IN(t->grad[v], d), NO_ATTRS);
}

/* Is the gradient of input i left out, because a product would have to be made for it? What is
 * handed on as it arrives costs nothing. */
static bool is_cut(const struct tape *t, const struct node *n, int i, const value_id *d_out)
{
    bool shortened = n->block != BLOCK_NONE && n->block < t->n_shortened;
    if (!shortened || op_get(n->op)->recompute == RECOMPUTE_CHEAP || t->is_wanted[n->in[i]])
        return false;
    for (int k = 0; k < n->n_out; k++) {
        if (t->d_in[i] == d_out[k])
            return false;
    }
    return true;
}

static enum status differentiate(struct tape *t, node_id k)
{
    struct node n = *graph_node(t->g, k); /* a copy: building moves the array */
    const struct op_def *d = op_get(n.op);
    value_id d_out[MAX_OUTPUTS];
    bool any_out = false, any_in = false;
    for (int i = 0; i < n.n_out; i++) {
        d_out[i] = t->grad[n.out[i]];
        any_out |= d_out[i] != VALUE_NONE;
    }
    for (int i = 0; i < n.n_in; i++) {
        t->wants[i] = wants_gradient(t, &n, i);
        t->d_in[i] = VALUE_NONE;
        any_in |= t->wants[i];
    }
    if (!any_out || !any_in)
        return OK;
    if (!d->grad)
        return FAIL(ERR_INTERNAL, "%s is not differentiable, but a gradient reaches it", d->name);

    t->b.block = n.block;
    TRY(d->grad(&t->b, &n, d_out, t->wants, t->d_in));
    for (int i = 0; i < n.n_in; i++) {
        if (t->wants[i] && !is_cut(t, &n, i, d_out))
            add_contribution(t, n.in[i], t->d_in[i]);
    }
    return builder_status(&t->b);
}

enum status autodiff(struct graph *g, value_id loss, value_id seed, const value_id *wanted,
                     size_t n_wanted, value_id *grads)
{
    return autodiff_roots(g, &(struct autodiff_root){loss, seed}, 1, wanted, n_wanted, grads);
}

enum status autodiff_roots(struct graph *g, const struct autodiff_root *roots, size_t n_roots,
                           const value_id *wanted, size_t n_wanted, value_id *grads)
{
    return autodiff_shortened(g, roots, n_roots, wanted, n_wanted, 0, grads);
}

enum status autodiff_shortened(struct graph *g, const struct autodiff_root *roots, size_t n_roots,
                               const value_id *wanted, size_t n_wanted, int n_blocks,
                               value_id *grads)
{
    struct tape t;
    size_t n_forward = g->nodes.n;
    enum status status = tape_init(&t, g);
    if (status != OK)
        goto out;
    t.n_shortened = n_blocks;
    mark_required(&t, wanted, n_wanted);
    for (size_t i = 0; i < n_roots; i++)
        add_contribution(&t, roots[i].loss, roots[i].seed);
    for (size_t k = n_forward; k-- > 0;)
        TRY_GOTO(differentiate(&t, (node_id)k), out);
    for (size_t i = 0; i < n_wanted; i++) {
        grads[i] = t.grad[wanted[i]];
        if (grads[i] != VALUE_NONE && graph_value(g, grads[i])->producer != NODE_NONE)
            graph_value(g, grads[i])->role = ROLE_GRADIENT;
    }
out:
    tape_release(&t);
    return status;
}
