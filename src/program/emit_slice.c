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
 *
 * A gradient that is never whole (FORM) is not made where its node stands: there it is only seen to
 * that what it is made from is on the device. Whoever reads it makes it, slice after slice, each in
 * the memory of the one before it:
 *
 *     compute     form 0, squares 0   form 1, squares 1   ...   form 0, update 0   form 1, update 1
 */
#include "program/emit.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static bool is_away(const struct emitter *e, value_id v)
{
    value_id root = e->root[v];
    return e->where[root] < 0 && (e->home[root] >= 0 || e->moved[root] >= 0);
}

/* An input that slices divide, and that has to be fetched for them alone: what a later node needs
 * as a whole is fetched whole, once. */
static bool is_fetched(const struct emitter *e, const struct node *n, int i)
{
    bool whole = mask_has(op_get(n->op)->whole_inputs, i) || op_get(n->op)->ignores_inputs;
    return n->in[i] != VALUE_NONE && !whole && is_away(e, n->in[i]) &&
           e->whole_reads[e->root[n->in[i]]] == 0;
}

/* An input that is made for the slices. */
static bool is_formed(const struct emitter *e, const struct node *n, int i)
{
    return n->in[i] != VALUE_NONE && e->plan->treat[e->root[n->in[i]]] == FORM;
}

bool emit_is_formed(const struct emitter *e, const struct node *n)
{
    return e->plan->treat[n->out[0]] == FORM;
}

/* Bytes of the largest input that has to be fetched, or made. */
static int64_t largest_in_parts(const struct emitter *e, const struct node *n, bool *formed)
{
    int64_t most = 0;
    *formed = false;
    for (int i = 0; i < n->n_in; i++) {
        *formed |= is_formed(e, n, i);
        if (is_fetched(e, n, i) || is_formed(e, n, i))
            most = MAX(most, e->n_bytes[n->in[i]]);
    }
    return most;
}

bool emit_in_slices(const struct emitter *e, node_id k)
{
    const struct node *n = graph_node(e->g, k);
    bool formed, by_rows = op_get(n->op)->by_rows;
    if (e->plan->sliceable[k] == 0)
        return false;
    int64_t most = largest_in_parts(e, n, &formed);
    if (!formed && (e->plan->slice_bytes <= 0 || most <= e->plan->slice_bytes))
        return false;
    if (by_rows && !program_makes_rows(e->g, graph_value(e->g, n->out[0])->producer, e->device))
        return false;
    /* What is updated has to be somewhere as a whole: at home, or on the device. */
    for (int i = 0; i < n->n_out; i++) {
        value_id root = e->root[n->out[i]];
        if (node_alias(n, i) && e->home[root] < 0 && e->where[root] < 0)
            return false;
    }
    return true;
}

/* What slices are counted in. */
static int64_t slice_unit(const struct emitter *e, const struct node *n)
{
    int64_t unit = node_granule(e->g, n);
    for (int i = 0; i < n->n_in; i++) {
        if (is_formed(e, n, i)) /* a multiple of it */
            unit = MAX(unit, plan_form_unit(e->plan, e->g, e->root[n->in[i]]));
    }
    return unit;
}

/* Bytes that a slice has of the largest input, at most. What is made for it is memory that was not
 * there before: a small part of the whole. */
static int64_t slice_limit(const struct emitter *e, int64_t most, bool formed)
{
    enum { FORMED_PARTS = 8 };
    int64_t limit = formed ? ceil_div(most, FORMED_PARTS) : most;
    int64_t slice_bytes = e->plan->slice_bytes;
    return slice_bytes > 0 ? MIN(limit, plan_slice_bytes(slice_bytes, most)) : limit;
}

/* Elements of a slice: no more than fit its limit, in slices of one size. Those of any size to
 * speak of begin where every operand is aligned. */
static int64_t slice_elems(const struct emitter *e, const struct node *n)
{
    bool formed;
    int64_t all = node_sliceable(e->g, n), unit = slice_unit(e, n);
    int64_t largest = largest_in_parts(e, n, &formed), size = ceil_div(largest, all);
    int64_t fit = slice_limit(e, largest, formed) / size;
    unit *= fit / unit >= ARENA_ALIGN ? ARENA_ALIGN : 1;
    int64_t n_slices = ceil_div(all, MAX(fit / unit * unit, unit));
    return ceil_div(ceil_div(all, n_slices), unit) * unit;
}

/* The slice of a gradient that is never whole: where[] is that until emit_drop_parts. */
static enum status emit_form(struct emitter *e, value_id v, struct slice s)
{
    const struct value *x = graph_value(e->g, v);
    const struct node *n = graph_node(e->g, x->producer);
    struct byte_range range = slice_bytes(e->g, n, s, n->n_in + x->output);
    const char *name = emit_name(e, n, x->output);
    int32_t buffer;
    TRY(pool_status(&e->p->pool));
    TRY(emit_buffer(e, name, emit_class(e, v, false), TIER_DEVICE, range.n_bytes, v, &buffer));
    e->p->buffers.items[buffer].value_at = range.at;
    e->where[v] = buffer;
    TRY(vec_push(&e->parts, v));
    return emit_compute(e, x->producer, e->again[v], s);
}

/* done[i]: the event behind which this slice of output i is at home. */
static enum status emit_slice(struct emitter *e, node_id k, struct slice s, int *done)
{
    const struct node *n = graph_node(e->g, k);
    TRY(emit_wait_due(e));
    for (int i = 0; i < n->n_in; i++) {
        if (is_fetched(e, n, i))
            TRY(emit_fetch_part(e, e->root[n->in[i]], e->held[n->in[i]],
                                slice_bytes(e->g, n, s, i)));
        if (is_formed(e, n, i))
            TRY(emit_form(e, e->root[n->in[i]], s));
    }
    TRY(emit_compute(e, k, false, s));
    for (int i = 0; i < n->n_out; i++) {
        value_id root = e->root[n->out[i]];
        if (e->home[root] >= 0)
            TRY(emit_write_part(e, root, e->now[root], slice_bytes(e->g, n, s, n->n_in + i),
                                &done[i]));
    }
    emit_drop_parts(e);
    return OK;
}

/* Everything but what comes in parts is on the device, and what is written has its place. */
static enum status prepare(struct emitter *e, const struct node *n)
{
    int32_t buffer;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE && !is_fetched(e, n, i) && !is_formed(e, n, i))
            TRY(emit_ensure(e, n->in[i], true));
    }
    for (int i = 0; i < n->n_out; i++) {
        value_id root = e->root[n->out[i]];
        /* An earlier value on its way home must not be overwritten before it has left. */
        if (e->home[root] >= 0 && e->where[root] >= 0)
            TRY(emit_wait_buffer(e, e->where[root]));
        TRY(emit_output(e, n, i, false, &buffer));
    }
    return OK;
}

enum status emit_slices(struct emitter *e, node_id k)
{
    const struct node *n = graph_node(e->g, k);
    int64_t all = node_sliceable(e->g, n), most = slice_elems(e, n);
    int done[MAX_OUTPUTS];
    TRY(prepare(e, n));
    for (int64_t first = 0; first < all; first += most)
        TRY(emit_slice(e, k, (struct slice){first, MIN(most, all - first)}, done));
    for (int i = 0; i < n->n_out; i++) {
        value_id root = e->root[n->out[i]];
        if (e->home[root] >= 0)
            e->ready[root] = done[i];
    }
    for (int i = 0; i < n->n_in; i++) {
        if (is_formed(e, n, i)) /* for the next reader it is made again */
            e->again[e->root[n->in[i]]] = true;
    }
    return OK;
}
