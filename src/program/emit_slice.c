/* emit_slice.c: updates in slices.
 *
 * An update reads and writes the parameter, its master and its states, and reads the gradient. Of a
 * large one that is away from the device, slice after slice is fetched, updated and written home:
 *
 *     in          fetch 0   fetch 1   fetch 2
 *     compute               update 0  update 1  update 2
 *     out                             write 0   write 1   write 2
 *
 * so that never more than a few slices of it are on the device. Operands that are on the device
 * already, or will be for the next node, are worked on in place, and written home slice by slice
 * too. overlap.c moves the fetches ahead, as any: a slice's fetch waits for what was written home
 * before the update, not for the slices before it, which touch other bytes.
 */
#include "program/emit.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static bool is_away(const struct emitter *e, value_id v)
{
    value_id root = value_root(e->g, v);
    return e->where[root] < 0 && (e->home[root] >= 0 || e->moved[root] >= 0);
}

/* An input that slices divide, and that has to be fetched for them alone: what a later node needs
 * as a whole is fetched whole, once. */
static bool is_fetched(const struct emitter *e, const struct node *n, int i)
{
    bool whole = mask_has(op_get(n->op)->whole_inputs, i);
    return n->in[i] != VALUE_NONE && !whole && is_away(e, n->in[i]) &&
           e->whole_reads[value_root(e->g, n->in[i])] == 0;
}

/* Bytes of the largest input that has to be fetched. */
static int64_t largest_fetched(const struct emitter *e, const struct node *n)
{
    int64_t most = 0;
    for (int i = 0; i < n->n_in; i++) {
        if (is_fetched(e, n, i))
            most = MAX(most, value_bytes(e->g, n->in[i]));
    }
    return most;
}

bool emit_in_slices(const struct emitter *e, const struct node *n)
{
    if (e->plan->slice_bytes <= 0 || node_sliceable(e->g, n) == 0 ||
        largest_fetched(e, n) <= e->plan->slice_bytes)
        return false;
    /* What is written has to be somewhere as a whole: at home, or on the device. */
    for (int i = 0; i < n->n_out; i++) {
        value_id root = value_root(e->g, n->out[i]);
        if (!node_alias(n, i) || (e->home[root] < 0 && e->where[root] < 0))
            return false;
    }
    return true;
}

/* Elements of a slice: no more than slice_bytes of the largest input have, in slices of one size.
 * Those of any size to speak of begin where every operand is aligned. */
static int64_t slice_elems(const struct emitter *e, const struct node *n)
{
    int64_t all = node_sliceable(e->g, n), granule = op_get(n->op)->granule;
    int64_t size = ceil_div(largest_fetched(e, n), all);
    int64_t fit = e->plan->slice_bytes / size;
    int64_t unit = fit >= granule * ARENA_ALIGN ? granule * ARENA_ALIGN : granule;
    int64_t n_slices = ceil_div(all, MAX(fit / unit * unit, unit));
    return ceil_div(ceil_div(all, n_slices), unit) * unit;
}

/* done[i]: the event behind which this slice of output i is at home. */
static enum status emit_slice(struct emitter *e, node_id k, struct slice s, int *done)
{
    const struct node *n = graph_node(e->g, k);
    TRY(emit_wait_due(e));
    for (int i = 0; i < n->n_in; i++) {
        if (is_fetched(e, n, i))
            TRY(emit_fetch_part(e, value_root(e->g, n->in[i]), value_view_root(e->g, n->in[i]),
                                slice_bytes(e->g, n, s, i)));
    }
    TRY(emit_compute(e, k, false, s));
    for (int i = 0; i < n->n_out; i++) {
        value_id root = value_root(e->g, n->out[i]);
        if (e->home[root] >= 0)
            TRY(emit_write_part(e, root, e->now[root], slice_bytes(e->g, n, s, n->n_in + i),
                                &done[i]));
    }
    emit_drop_parts(e);
    return OK;
}

enum status emit_slices(struct emitter *e, node_id k)
{
    const struct node *n = graph_node(e->g, k);
    int64_t all = node_sliceable(e->g, n), most = slice_elems(e, n);
    int done[MAX_OUTPUTS];
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE && !is_fetched(e, n, i))
            TRY(emit_ensure(e, n->in[i], true));
    }
    /* An earlier value on its way home must not be overwritten before it has left. */
    for (int i = 0; i < n->n_out; i++) {
        value_id root = value_root(e->g, n->out[i]);
        if (e->home[root] >= 0 && e->where[root] >= 0)
            TRY(emit_wait_buffer(e, e->where[root]));
    }
    for (int64_t first = 0; first < all; first += most)
        TRY(emit_slice(e, k, (struct slice){first, MIN(most, all - first)}, done));
    for (int i = 0; i < n->n_out; i++) {
        value_id root = value_root(e->g, n->out[i]);
        if (e->home[root] >= 0)
            e->ready[root] = done[i];
    }
    return OK;
}
