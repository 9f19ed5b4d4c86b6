/* emit_copy.c: what crosses tiers.
 *
 * Every copy is fenced the same way:
 *
 *     compute: record a      queue: wait a, copy, record b      compute: wait b
 *
 * `wait a` orders the copy after every earlier use of both ends by compute; `wait b` comes at once
 * when compute needs the data (copies in; overlap.c moves all but this wait to the front), and when
 * plan.behind_bytes are under way where it only needs the memory back (copies out).
 */
#include "program/emit.h"

static enum status copy(struct emitter *e, enum queue q, int32_t src, int32_t dst, value_id value,
                        int after, int *done)
{
    int start = e->p->n_events++;
    *done = e->p->n_events++;
    TRY(emit_event(e, INSTR_RECORD, QUEUE_COMPUTE, start));
    TRY(emit_event(e, INSTR_WAIT, q, start));
    if (after >= 0)
        TRY(emit_event(e, INSTR_WAIT, q, after));
    TRY(emit_operand(e, src, ACCESS_READ, value));
    TRY(emit_operand(e, dst, ACCESS_WRITE, value));
    struct instr i = {.kind = INSTR_COPY, .queue = q, .node = NODE_NONE};
    TRY(emit_instr(e, i, 2));
    return emit_event(e, INSTR_RECORD, q, *done);
}

static enum status copy_in(struct emitter *e, int32_t src, value_id root, value_id value,
                           enum memory_class kind)
{
    int32_t dst;
    int done;
    const char *name = e->p->buffers.items[src].name;
    TRY(emit_buffer(e, name, kind, TIER_DEVICE, value_bytes(e->g, root), root, &dst));
    struct fetch f = {.first = (int32_t)e->p->instrs.n,
                      .after = e->ready[root],
                      .n_bytes = value_bytes(e->g, root)};
    TRY(copy(e, QUEUE_IN, src, dst, value, e->ready[root], &done));
    f.n = (int32_t)e->p->instrs.n - f.first;
    TRY(vec_push(&e->fetches, f));
    e->where[root] = dst;
    return emit_event(e, INSTR_WAIT, QUEUE_COMPUTE, done);
}

enum status emit_stage_in(struct emitter *e, value_id root)
{
    TRY(copy_in(e, e->home[root], root, e->now[root], MEMORY_STAGING));
    return vec_push(&e->staged, root);
}

enum status emit_move_in(struct emitter *e, value_id root)
{
    return copy_in(e, e->moved[root], root, e->now[root], emit_class(e, root, false));
}

static enum status copy_out(struct emitter *e, value_id root, int32_t dst)
{
    int done;
    TRY(copy(e, QUEUE_OUT, e->where[root], dst, e->now[root], e->ready[root], &done));
    struct pending_copy c = {e->where[root], done, value_bytes(e->g, root)};
    TRY(vec_push(&e->pending, c));
    e->ready[root] = done;
    return OK;
}

enum status emit_move_out(struct emitter *e, value_id root)
{
    int32_t dst = e->kept[root];
    const char *name = e->p->buffers.items[e->where[root]].name;
    if (dst < 0)
        TRY(emit_buffer(e, name, emit_class(e, root, false), e->plan->home[root],
                        value_bytes(e->g, root), root, &dst));
    e->moved[root] = dst;
    TRY(copy_out(e, root, dst));
    e->where[root] = -1;
    return OK;
}

enum status emit_write_back(struct emitter *e, value_id root)
{
    return copy_out(e, root, e->home[root]);
}

void emit_unstage_all(struct emitter *e)
{
    for (size_t i = 0; i < e->staged.n; i++)
        e->where[e->staged.items[i]] = -1;
    e->staged.n = 0;
}

static enum status wait_for(struct emitter *e, const struct pending_copy *c)
{
    struct buffer *b = &e->p->buffers.items[c->buffer];
    b->last = MAX(b->last, (int32_t)e->p->instrs.n);
    return emit_event(e, INSTR_WAIT, QUEUE_COMPUTE, c->event);
}

enum status emit_wait_due(struct emitter *e)
{
    int64_t n_bytes = 0;
    size_t first = e->pending.n;
    while (first > 0 && n_bytes + e->pending.items[first - 1].n_bytes <= e->plan->behind_bytes)
        n_bytes += e->pending.items[--first].n_bytes;
    for (size_t i = 0; i < first; i++)
        TRY(wait_for(e, &e->pending.items[i]));
    for (size_t i = first; i < e->pending.n; i++)
        e->pending.items[i - first] = e->pending.items[i];
    e->pending.n -= first;
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
    struct port port = {.name = name, .value = v, .n_bytes = value_bytes(e->g, v)};
    TRY(emit_buffer(e, name, MEMORY_STAGING, TIER_HOST, port.n_bytes, v, &port.buffer));
    *buffer = port.buffer;
    return input ? vec_push(&e->p->inputs, port) : vec_push(&e->p->outputs, port);
}

enum status emit_input_copies(struct emitter *e, uint32_t passes)
{
    for (node_id k = 0; (size_t)k < e->g->nodes.n; k++) {
        const struct node *n = graph_node(e->g, k);
        for (int i = 0; (passes >> n->pass & 1u) && i < n->n_in; i++) {
            if (n->in[i] == VALUE_NONE)
                continue;
            value_id root = value_root(e->g, n->in[i]);
            const struct value *v = graph_value(e->g, root);
            bool is_input = v->producer == NODE_NONE && v->role == ROLE_INPUT;
            if (!is_input || e->where[root] >= 0)
                continue;
            int32_t port;
            TRY(find_port(e, true, v->name, root, &port));
            TRY(copy_in(e, port, root, root, MEMORY_STAGING));
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
        value_id held = value_view_root(e->g, o->value);
        TRY(copy(e, QUEUE_OUT, e->where[value_root(e->g, o->value)], port, held, -1, &done));
        struct pending_copy c = {e->where[value_root(e->g, o->value)], done,
                                 value_bytes(e->g, held)};
        TRY(vec_push(&e->pending, c));
    }
    return OK;
}
