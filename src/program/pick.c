/* pick.c: the kernel that a node, or a slice of it, is called with. */
#include <pthread.h>
#include <string.h>

#include "program/emit.h"

/* Kernels that ask a library remember what it said, and two threads may plan at the same time. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

enum status pick_kernel(const struct graph *g, const struct node *n, struct slice slice,
                        const struct device *device, struct picked *out)
{
    struct tensor *in, tensors[MAX_OUTPUTS];
    TRY(mem_try_array(&in, (size_t)MAX(n->n_in, 1), sizeof(*in)));
    struct op_call call;
    node_call_slice(g, n, slice, in, tensors, &call);
    const char *why = "";
    (void)pthread_mutex_lock(&asking);
    *out = (struct picked){.kernel =
                               kernel_pick(device->ops->kernels(n->op), &call, &device->env, &why)};
    if (out->kernel && out->kernel->workspace)
        out->n_workspace = out->kernel->workspace(&call, &device->env);
    (void)pthread_mutex_unlock(&asking);
    mem_free(in);
    if (!out->kernel)
        return FAIL(ERR_UNSUPPORTED, "%s on %s: %s", op_get(n->op)->name, device->ops->name, why);
    return OK;
}

/* A node is made of many slices of one size. Where they begin is asked by kernels that make rows,
 * to find theirs in the operands; for the others one slice is like the next. */
static bool is_like_last(const struct emitter *e, node_id k, struct slice slice)
{
    return e->sliced.n == slice.n && e->sliced.node == k &&
           !op_get(graph_node(e->g, k)->op)->by_rows;
}

/* Kernels may ask which element a slice begins with. */
static enum status pick_call(struct emitter *e, const struct node *n, struct slice slice,
                             struct picked *out)
{
    const uint64_t call = call_hash(e->g, n, slice), hash = call + (uint64_t)slice.first;
    struct known_pick *known = &e->picks[hash % N_PICKS];
    if (!known->picked.kernel || known->hash != hash) {
        TRY(pick_kernel(e->g, n, slice, e->device, &known->picked));
        known->hash = hash;
        known->picked.call = call;
    }
    *out = known->picked;
    return OK;
}

/* The same for every program of the plan. */
static enum status pick_whole(struct emitter *e, node_id k, struct picked *out)
{
    struct plan_emitted *before = e->plan->emitted;
    if (before->device != e->device)
        memset(before->picked, 0, e->g->nodes.n * sizeof(*before->picked));
    before->device = e->device;
    if (!before->picked[k].kernel)
        TRY(pick_call(e, graph_node(e->g, k), (struct slice){0}, &before->picked[k]));
    *out = before->picked[k];
    return OK;
}

enum status emit_pick(struct emitter *e, node_id k, struct slice slice, struct picked *out)
{
    if (slice.n == 0)
        return pick_whole(e, k, out);
    if (is_like_last(e, k, slice)) {
        *out = e->sliced.picked;
        return OK;
    }
    TRY(pick_call(e, graph_node(e->g, k), slice, out));
    e->sliced.node = k;
    e->sliced.n = slice.n;
    e->sliced.picked = *out;
    return OK;
}

bool program_makes_rows(const struct graph *g, node_id k, const struct device *device)
{
    const struct node *n = graph_node(g, k);
    struct picked whole, row;
    return op_get(n->op)->by_rows && node_sliceable(g, n) > 0 &&
           pick_kernel(g, n, (struct slice){0}, device, &whole) == OK &&
           pick_kernel(g, n, (struct slice){0, node_granule(g, n)}, device, &row) == OK &&
           whole.kernel == row.kernel;
}
