/* pick.c: the kernel that a node, or a slice of it, is called with. */
#include "program/emit.h"

enum status pick_kernel(const struct graph *g, const struct node *n, struct slice slice,
                        const struct device *device, struct picked *out)
{
    struct tensor *in, tensors[MAX_OUTPUTS];
    TRY(mem_try_array(&in, (size_t)MAX(n->n_in, 1), sizeof(*in)));
    struct op_call call;
    node_call_slice(g, n, slice, in, tensors, &call);
    const char *why = "";
    *out = (struct picked){.kernel =
                               kernel_pick(device->ops->kernels(n->op), &call, &device->env, &why)};
    if (out->kernel && out->kernel->workspace)
        out->n_workspace = out->kernel->workspace(&call, &device->env);
    mem_free(in);
    if (!out->kernel)
        return FAIL(ERR_UNSUPPORTED, "%s on %s: %s", op_get(n->op)->name, device->ops->name, why);
    return OK;
}

/* A graph is emitted again and again by a search, and the hash is a good part of that. */
static uint64_t known_hash(const struct emitter *e, node_id k, struct slice slice)
{
    const struct node *n = graph_node(e->g, k);
    uint64_t *known = &e->plan->call_hash[k];
    if (slice.n > 0)
        return call_hash(e->g, n, slice);
    if (*known == 0)
        *known = call_hash(e->g, n, slice);
    return *known;
}

/* A node is made of many slices of one size. Where they begin is asked by kernels that make rows,
 * to find theirs in the operands; for the others one slice is like the next. */
static bool is_like_last(const struct emitter *e, node_id k, struct slice slice)
{
    return slice.n > 0 && e->sliced.n == slice.n && e->sliced.node == k &&
           !op_get(graph_node(e->g, k)->op)->by_rows;
}

enum status emit_pick(struct emitter *e, node_id k, struct slice slice, struct picked *out)
{
    const struct node *n = graph_node(e->g, k);
    if (is_like_last(e, k, slice)) {
        *out = e->sliced.picked;
        return OK;
    }
    uint64_t call = known_hash(e, k, slice);
    /* Kernels may ask which element a slice begins with. */
    uint64_t hash = call + (uint64_t)slice.first;
    struct known_pick *known = &e->picks[hash % N_PICKS];
    if (!known->picked.kernel || known->hash != hash) {
        TRY(pick_kernel(e->g, n, slice, e->device, &known->picked));
        known->hash = hash;
        known->picked.call = call;
    }
    *out = known->picked;
    if (slice.n > 0) {
        e->sliced.node = k;
        e->sliced.n = slice.n;
        e->sliced.picked = *out;
    }
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
