/* emit_copy.c: what crosses tiers.
 *
 * Every copy is fenced the same way:
 *
 *     compute: record a      queue: wait a, copy, record b      compute: wait b
 *
 * `wait a` orders the copy after every earlier use of both ends by compute; `wait b` comes at once
 * when compute needs the data (copies in; overlap.c moves all but this wait to the front), and when
 * plan.behind_bytes are under way where it only needs the memory back (copies out).
 *
 * What is on disk comes and goes by way of the host where the host cannot follow the device's
 * addresses: two copies with memory of the host between them,
 *
 *     compute: record a   disk: wait a, copy, record c
 *     compute: record d   in: wait d, wait c, copy, record b   compute: wait b
 *
 * so that a read may be further ahead than what it is read for: the host has room when the device
 * has none.
 */
#include "program/emit.h"

/* Bytes of a value from one buffer to another; behind `after`, an event, unless that is -1. */
struct transfer {
    enum queue queue;
    int32_t src, dst;
    value_id value;
    struct byte_range range;
    int after;
};

/* The copy alone, behind t->after. */
static enum status hop(struct emitter *e, const struct transfer *t, int *done)
{
    *done = e->p->n_events++;
    if (t->after >= 0)
        TRY(emit_event(e, INSTR_WAIT, t->queue, t->after));
    TRY(emit_operand_range(e, t->src, ACCESS_READ, t->value, t->range));
    TRY(emit_operand_range(e, t->dst, ACCESS_WRITE, t->value, t->range));
    struct instr i = {.kind = INSTR_COPY, .queue = t->queue, .node = NODE_NONE};
    TRY(emit_instr(e, i, 2));
    return emit_event(e, INSTR_RECORD, t->queue, *done);
}

/* The copy behind everything that compute has done so far. */
static enum status copy(struct emitter *e, const struct transfer *t, int *done)
{
    int start = e->p->n_events++;
    TRY(emit_event(e, INSTR_RECORD, QUEUE_COMPUTE, start));
    TRY(emit_event(e, INSTR_WAIT, t->queue, start));
    return hop(e, t, done);
}

static bool is_on_disk(const struct emitter *e, int32_t buffer)
{
    return e->p->buffers.items[buffer].tier == TIER_DISK;
}

static bool goes_by_host(const struct emitter *e, const struct transfer *t)
{
    return (is_on_disk(e, t->src) || is_on_disk(e, t->dst)) &&
           !device_host_reaches(e->device, TIER_DEVICE);
}

/* Memory of the host for what is between the disk and the device. */
static enum status make_halfway(struct emitter *e, const struct transfer *t, int32_t *out)
{
    const struct buffer *src = &e->p->buffers.items[t->src];
    TRY(emit_buffer(e, src->name, MEMORY_STAGING, TIER_HOST, t->range.n_bytes, src->value, out));
    e->p->buffers.items[*out].value_at = t->range.at;
    return OK;
}

/* The copy, and how it is moved ahead later. */
static enum status copy_ahead(struct emitter *e, const struct transfer *t, struct movable f,
                              int *done)
{
    f.first = (int32_t)e->p->instrs.n;
    f.n_bytes = t->range.n_bytes;
    TRY(copy(e, t, done));
    f.n = (int32_t)e->p->instrs.n - f.first;
    return f.onward >= 0 ? vec_push(&e->reads, f) : vec_push(&e->fetches, f);
}

/* From disk, if by way of the host, or from the host. */
static enum status copy_here(struct emitter *e, struct transfer t, int *done)
{
    struct transfer first = t;
    struct movable f = {.after = t.after, .onward = -1};
    t.queue = first.queue = is_on_disk(e, t.src) ? QUEUE_DISK : QUEUE_IN;
    if (goes_by_host(e, &t)) {
        TRY(make_halfway(e, &t, &first.dst));
        f.onward = (int32_t)e->fetches.n;
        TRY(copy_ahead(e, &first, f, &t.after));
        t.src = first.dst;
        t.queue = QUEUE_IN;
        f = (struct movable){.after = -1, .onward = -1}; /* it stays behind its read */
    }
    return copy_ahead(e, &t, f, done);
}

static struct byte_range all_of(const struct emitter *e, value_id v)
{
    return (struct byte_range){0, e->n_bytes[v]};
}

/* From t->src into a new buffer, which is where the root is then. */
static enum status copy_in(struct emitter *e, struct transfer t, value_id root,
                           enum memory_class kind)
{
    int done;
    const char *name = e->p->buffers.items[t.src].name;
    TRY(emit_buffer(e, name, kind, TIER_DEVICE, t.range.n_bytes, root, &t.dst));
    e->p->buffers.items[t.dst].value_at = t.range.at;
    t.after = e->ready[root];
    TRY(copy_here(e, t, &done));
    e->where[root] = t.dst;
    return emit_event(e, INSTR_WAIT, QUEUE_COMPUTE, done);
}

enum status emit_stage_in(struct emitter *e, value_id root)
{
    struct transfer t = {.src = e->home[root], .value = e->now[root], .range = all_of(e, root)};
    TRY(copy_in(e, t, root, MEMORY_STAGING));
    return vec_push(&e->staged, root);
}

enum status emit_stage_blank(struct emitter *e, value_id root)
{
    const char *name = e->p->buffers.items[e->home[root]].name;
    TRY(emit_buffer(e, name, MEMORY_STAGING, TIER_DEVICE, e->n_bytes[root], root, &e->where[root]));
    return vec_push(&e->staged, root);
}

enum status emit_move_in(struct emitter *e, value_id root)
{
    struct transfer t = {.src = e->moved[root], .value = e->now[root], .range = all_of(e, root)};
    return copy_in(e, t, root, emit_class(e, root, false));
}

enum status emit_fetch_part(struct emitter *e, value_id root, value_id value,
                            struct byte_range range)
{
    bool at_home = e->home[root] >= 0;
    struct transfer t = {
        .src = at_home ? e->home[root] : e->moved[root], .value = value, .range = range};
    TRY(copy_in(e, t, root, at_home ? MEMORY_STAGING : emit_class(e, root, false)));
    return vec_push(&e->parts, root);
}

void emit_drop_parts(struct emitter *e)
{
    for (size_t i = 0; i < e->parts.n; i++)
        e->where[e->parts.items[i]] = -1;
    e->parts.n = 0;
}

/* What a copy reads stays as it is until compute has waited for it. */
static enum status keep_source(struct emitter *e, const struct transfer *t, enum pending_kind kind,
                               int done)
{
    struct pending_copy c = {.buffer = t->src,
                             .to = t->dst,
                             .at = e->p->buffers.items[t->dst].last,
                             .event = done,
                             .n_bytes = t->range.n_bytes,
                             .kind = kind};
    e->pending_bytes[kind] += c.n_bytes;
    return vec_push(&e->pending, c);
}

static enum status copy_out(struct emitter *e, struct transfer t, int *done)
{
    struct transfer first = t;
    t.queue = first.queue = is_on_disk(e, t.dst) ? QUEUE_DISK : QUEUE_OUT;
    if (!goes_by_host(e, &t)) {
        TRY(copy(e, &t, done));
        return keep_source(e, &t, PENDING_DEVICE, *done);
    }
    int there;
    first.queue = QUEUE_OUT;
    first.after = -1;
    TRY(make_halfway(e, &t, &first.dst));
    TRY(copy(e, &first, &there));
    TRY(keep_source(e, &first, PENDING_DEVICE, there));
    t.src = first.dst;
    if (t.after >= 0)
        TRY(emit_event(e, INSTR_WAIT, t.queue, t.after));
    t.after = there;
    TRY(hop(e, &t, done));
    return keep_source(e, &t, PENDING_HALFWAY, *done);
}

static enum status leave(struct emitter *e, value_id root, int32_t dst)
{
    struct transfer t = {.src = e->where[root],
                         .dst = dst,
                         .value = e->now[root],
                         .range = all_of(e, root),
                         .after = e->ready[root]};
    return copy_out(e, t, &e->ready[root]);
}

enum status emit_move_out(struct emitter *e, value_id root)
{
    int32_t dst = e->kept[root];
    const char *name = e->p->buffers.items[e->where[root]].name;
    if (dst < 0)
        TRY(emit_buffer(e, name, emit_class(e, root, false), e->plan->home[root], e->n_bytes[root],
                        root, &dst));
    e->moved[root] = dst;
    TRY(leave(e, root, dst));
    e->where[root] = -1;
    return OK;
}

enum status emit_write_back(struct emitter *e, value_id root)
{
    return leave(e, root, e->home[root]);
}

enum status emit_write_part(struct emitter *e, value_id root, value_id value,
                            struct byte_range range, int *done)
{
    struct transfer t = {.src = e->where[root],
                         .dst = e->home[root],
                         .value = value,
                         .range = range,
                         .after = e->ready[root]};
    return copy_out(e, t, done);
}

void emit_unstage_all(struct emitter *e)
{
    for (size_t i = 0; i < e->staged.n; i++)
        e->where[e->staged.items[i]] = -1;
    e->staged.n = 0;
}

static enum status wait_for(struct emitter *e, const struct pending_copy *c)
{
    e->pending_bytes[c->kind] -= c->n_bytes;
    struct buffer *from = &e->p->buffers.items[c->buffer], *to = &e->p->buffers.items[c->to];
    from->last = MAX(from->last, (int32_t)e->p->instrs.n);
    if (to->last == c->at)
        to->last = (int32_t)e->p->instrs.n;
    return emit_event(e, INSTR_WAIT, QUEUE_COMPUTE, c->event);
}

/* A wait that may come later, where the host has room for what it gives back. */
static enum status note_wait(struct emitter *e, const struct pending_copy *c)
{
    struct movable m = {
        .first = (int32_t)e->p->instrs.n, .n = 1, .after = -1, .n_bytes = c->n_bytes, .onward = -1};
    return c->kind == PENDING_HALFWAY ? vec_push(&e->waits, m) : OK;
}

/* Of those of a kind, for the oldest until no more than `most` bytes are left. */
static enum status wait_for_oldest(struct emitter *e, enum pending_kind kind, int64_t most)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->pending.n; i++) {
        struct pending_copy c = e->pending.items[i];
        if (c.kind != kind || e->pending_bytes[kind] <= most) {
            e->pending.items[kept++] = c;
            continue;
        }
        TRY(note_wait(e, &c));
        TRY(wait_for(e, &c));
    }
    e->pending.n = kept;
    return OK;
}

enum status emit_wait_due(struct emitter *e)
{
    if (e->pending_bytes[PENDING_DEVICE] > e->plan->behind_bytes)
        TRY(wait_for_oldest(e, PENDING_DEVICE, e->plan->behind_bytes));
    if (e->pending_bytes[PENDING_HALFWAY] > e->plan->halfway_bytes)
        TRY(wait_for_oldest(e, PENDING_HALFWAY, e->plan->halfway_bytes));
    return OK;
}

enum status emit_wait_buffer(struct emitter *e, int32_t buffer)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->pending.n; i++) {
        struct pending_copy c = e->pending.items[i];
        if (c.buffer == buffer)
            TRY(wait_for(e, &c));
        else
            e->pending.items[kept++] = c;
    }
    e->pending.n = kept;
    return OK;
}

enum status emit_wait_all(struct emitter *e)
{
    for (size_t i = 0; i < e->pending.n; i++)
        TRY(wait_for(e, &e->pending.items[i]));
    e->pending.n = 0;
    return OK;
}

/* The host end of an input or output: memory the host fills or reads between sections. */
static enum status find_port(struct emitter *e, bool input, const char *name, value_id v,
                             int32_t *buffer)
{
    size_t n = input ? e->p->inputs.n : e->p->outputs.n;
    const struct port *ports = input ? e->p->inputs.items : e->p->outputs.items;
    for (size_t i = 0; i < n; i++) {
        if (ports[i].value == v) {
            *buffer = ports[i].buffer;
            return OK;
        }
    }
    struct port port = {.name = name, .value = v, .n_bytes = e->n_bytes[v]};
    TRY(emit_buffer(e, name, MEMORY_STAGING, TIER_HOST, port.n_bytes, v, &port.buffer));
    *buffer = port.buffer;
    return input ? vec_push(&e->p->inputs, port) : vec_push(&e->p->outputs, port);
}

enum status emit_input_copies(struct emitter *e, const struct section_rule *rule)
{
    for (node_id k = 0; (size_t)k < e->g->nodes.n; k++) {
        const struct node *n = graph_node(e->g, k);
        bool runs = section_has(rule, n) || (rule->late >> n->pass & 1u);
        for (int i = 0; runs && i < n->n_in; i++) {
            if (n->in[i] == VALUE_NONE)
                continue;
            value_id root = e->root[n->in[i]];
            const struct value *v = graph_value(e->g, root);
            bool is_input = v->producer == NODE_NONE && v->role == ROLE_INPUT;
            if (!is_input || e->where[root] >= 0)
                continue;
            int32_t port;
            TRY(find_port(e, true, v->name, root, &port));
            struct transfer t = {.src = port, .value = root, .range = all_of(e, root)};
            TRY(copy_in(e, t, root, MEMORY_STAGING));
        }
    }
    return OK;
}

enum status emit_output_copies(struct emitter *e)
{
    for (size_t i = 0; i < e->g->outputs.n; i++) {
        const struct graph_output *o = &e->g->outputs.items[i];
        int32_t port;
        int done;
        TRY(emit_ensure(e, o->value, true));
        TRY(find_port(e, false, o->name, o->value, &port));
        value_id held = e->held[o->value];
        struct transfer t = {.src = e->where[e->root[o->value]],
                             .dst = port,
                             .value = held,
                             .range = all_of(e, held),
                             .after = -1};
        TRY(copy_out(e, t, &done));
    }
    return OK;
}
