/* simulate.c: the check of invariant 2: a program is proved before it runs.
 *
 * The simulator knows only what the program says: instructions, operands, events. It keeps, for
 * every tier, a map from byte ranges to the value they hold, who wrote it and who read it since;
 * and for every queue, how much of every other queue is known to be finished (a vector clock,
 * advanced by waits on events). It then runs two steps with two micro-steps each and demands:
 *
 *   1. a read finds its whole range holding the value it expects, written by something ordered
 *      before it;
 *   2. a write is ordered after every earlier write and read of its range;
 *   3. storage and carried values end each section holding what the graph says they hold;
 *   4. buffers alive at the same time do not overlap;
 *   5. the high-water mark of each tier is the predicted one.
 */
#include <string.h>

#include "program/emit.h"

enum { UNDEFINED = -2 }; /* content nobody may read; VALUE_NONE is workspace */

struct region {
    int64_t begin, end;
    value_id content;
    enum queue writer;
    int64_t written;           /* writer's position */
    int64_t read[QUEUE_COUNT]; /* last reading position of each queue */
};

struct clocks {
    int64_t seen[QUEUE_COUNT];
    bool recorded;
};

/* What a section finds in a buffer and leaves there; VALUE_NONE: it does not say. */
struct section_label {
    value_id entry, leaves;
};

struct simulator {
    const struct program *p;
    const struct storage *storage;
    VEC(struct region) map[TIER_COUNT];
    int64_t position[QUEUE_COUNT];    /* instructions executed on each queue */
    struct clocks queue[QUEUE_COUNT]; /* what each queue knows to be finished */
    struct clocks *events;            /* snapshot at the record */
    int64_t high_water[TIER_COUNT];
    value_id *label;              /* per root: the value its memory holds between sections */
    struct section_label *labels; /* per section and buffer */
    int32_t at;                   /* instruction, for messages */
};

static enum status fail_at(const struct simulator *s, const char *what, const struct operand *o)
{
    const struct instr *i = &s->p->instrs.items[s->at];
    const char *op =
        i->kind == INSTR_COMPUTE ? op_get(graph_node(s->p->graph, i->node)->op)->name : "copy";
    const char *name = o && o->buffer >= 0 ? s->p->buffers.items[o->buffer].name : "";
    return FAIL(ERR_PROGRAM, "%s: instruction %d (%s on %s): %s: %s at %s+%lld, %lld bytes",
                s->p->name, s->at, op, queue_name(i->queue), what, name,
                o ? tier_name(o->tier) : "", o ? (long long)o->offset : 0,
                o ? (long long)o->n_bytes : 0);
}

/* ---- the map of a tier -------------------------------------------------------------------------
 */

/* Splits regions so that one begins exactly at `offset`; its index. */
static enum status split(struct simulator *s, enum tier t, int64_t offset, size_t *index)
{
    size_t low = 0, high = s->map[t].n;
    while (low < high) { /* first region that ends after offset */
        size_t middle = (low + high) / 2;
        if (s->map[t].items[middle].end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    *index = low;
    if (low == s->map[t].n || s->map[t].items[low].begin == offset)
        return OK;
    struct region tail = s->map[t].items[low];
    tail.begin = offset;
    s->map[t].items[low].end = offset;
    TRY(vec_push(&s->map[t], tail)); /* makes room; then shift */
    memmove(&s->map[t].items[low + 2], &s->map[t].items[low + 1],
            (s->map[t].n - low - 2) * sizeof(tail));
    s->map[t].items[low + 1] = tail;
    *index = low + 1;
    return OK;
}

static enum status range(struct simulator *s, enum tier t, int64_t offset, int64_t n_bytes,
                         size_t *first, size_t *end)
{
    if (offset < 0 || n_bytes < 0 || offset + n_bytes > s->p->n_bytes[t])
        return FAIL(ERR_PROGRAM, "%s: %s+%lld, %lld bytes, is outside the arena of %lld bytes",
                    s->p->name, tier_name(t), (long long)offset, (long long)n_bytes,
                    (long long)s->p->n_bytes[t]);
    TRY(split(s, t, offset, first));
    TRY(split(s, t, offset + n_bytes, end));
    return split(s, t, offset, first);
}

/* Sets content without an instruction: what the host put there, between sections. */
static enum status set_content(struct simulator *s, const struct buffer *b, value_id content)
{
    size_t first, end;
    TRY(range(s, b->tier, b->offset, b->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++)
        s->map[b->tier].items[k].content = content;
    return OK;
}

static enum status has_content(struct simulator *s, const struct buffer *b, value_id content)
{
    size_t first, end;
    TRY(range(s, b->tier, b->offset, b->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        if (s->map[b->tier].items[k].content != content)
            return FAIL(ERR_PROGRAM,
                        "%s: '%s' must hold value %d at the end of a section but holds %d",
                        s->p->name, b->name, content, s->map[b->tier].items[k].content);
    }
    return OK;
}

/* ---- instructions
 * --------------------------------------------------------------------------------- */

static bool knows(const struct simulator *s, enum queue q, enum queue other, int64_t position)
{
    return q == other || position <= s->queue[q].seen[other];
}

static enum status simulate_read(struct simulator *s, enum queue q, const struct operand *o)
{
    size_t first, end;
    TRY(range(s, o->tier, o->offset, o->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        struct region *r = &s->map[o->tier].items[k];
        if (r->content == UNDEFINED)
            return fail_at(s, "reads what was never written", o);
        if (r->content != o->value)
            return fail_at(s, "reads what was overwritten", o);
        if (!knows(s, q, r->writer, r->written))
            return fail_at(s, "reads without waiting for the write", o);
        r->read[q] = s->position[q];
    }
    return OK;
}

static enum status simulate_write(struct simulator *s, enum queue q, const struct operand *o)
{
    size_t first, end;
    TRY(range(s, o->tier, o->offset, o->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        struct region *r = &s->map[o->tier].items[k];
        if (!knows(s, q, r->writer, r->written))
            return fail_at(s, "overwrites without waiting for the last write", o);
        for (int other = 0; other < QUEUE_COUNT; other++) {
            if (!knows(s, q, (enum queue)other, r->read[other]))
                return fail_at(s, "overwrites without waiting for a read", o);
        }
        r->content = o->value;
        r->writer = q;
        r->written = s->position[q];
        memset(r->read, 0, sizeof(r->read));
    }
    return OK;
}

static enum status simulate_event(struct simulator *s, const struct instr *i)
{
    if (i->event < 0 || i->event >= s->p->n_events)
        return FAIL(ERR_PROGRAM, "%s: instruction %d: event %d does not exist", s->p->name, s->at,
                    i->event);
    struct clocks *e = &s->events[i->event], *q = &s->queue[i->queue];
    if (i->kind == INSTR_RECORD) {
        *e = *q;
        e->seen[i->queue] = s->position[i->queue];
        e->recorded = true;
        return OK;
    }
    if (!e->recorded)
        return FAIL(ERR_PROGRAM, "%s: instruction %d waits for event %d, which nothing recorded",
                    s->p->name, s->at, i->event);
    for (int other = 0; other < QUEUE_COUNT; other++)
        q->seen[other] = MAX(q->seen[other], e->seen[other]);
    return OK;
}

static enum status simulate_instr(struct simulator *s, const struct instr *i)
{
    s->position[i->queue]++;
    if (i->kind == INSTR_RECORD || i->kind == INSTR_WAIT)
        return simulate_event(s, i);
    const struct operand *o = &s->p->operands.items[i->first_operand];
    for (int32_t k = 0; k < i->n_operands; k++) {
        if (o[k].access != ACCESS_NONE)
            s->high_water[o[k].tier] = MAX(s->high_water[o[k].tier], o[k].offset + o[k].n_bytes);
        if (o[k].access == ACCESS_READ)
            TRY(simulate_read(s, i->queue, &o[k]));
    }
    for (int32_t k = 0; k < i->n_operands; k++) {
        if (o[k].access == ACCESS_WRITE)
            TRY(simulate_write(s, i->queue, &o[k]));
    }
    return OK;
}

/* ---- sections
 * --------------------------------------------------------------------------------------- */

/* Everything is finished between sections: all queues know all positions. */
static void synchronise(struct simulator *s)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        for (int other = 0; other < QUEUE_COUNT; other++)
            s->queue[q].seen[other] = s->position[other];
    }
    for (int e = 0; e < s->p->n_events; e++)
        s->events[e].recorded = false;
}

/* A root that lives between sections: storage, or carried over the micro-steps. */
static bool is_root_buffer(const struct program *p, const struct buffer *b)
{
    if (b->storage >= 0)
        return true;
    if (b->value == VALUE_NONE || b->tier != TIER_DEVICE || b->merged_into >= 0)
        return false;
    const struct value *v = graph_value(p->graph, b->value);
    return v->producer == NODE_NONE && (v->role == ROLE_GRADIENT || v->role == ROLE_METRIC);
}

/* Notes, for each section and buffer, the first value its operands mention and the last they write.
 */
static void find_labels(struct simulator *s)
{
    const struct program *p = s->p;
    size_t n_buffers = p->buffers.n;
    for (size_t i = 0; i < p->sections.n * n_buffers; i++)
        s->labels[i] = (struct section_label){VALUE_NONE, VALUE_NONE};
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *section = &p->sections.items[x];
        for (int32_t k = section->first; k < section->first + section->n; k++) {
            const struct instr *i = &p->instrs.items[k];
            for (int32_t n = 0; n < i->n_operands; n++) {
                const struct operand *o = &p->operands.items[i->first_operand + n];
                if (o->access == ACCESS_NONE)
                    continue;
                struct section_label *l = &s->labels[x * n_buffers + (size_t)o->buffer];
                if (l->entry == VALUE_NONE)
                    l->entry = o->value;
                if (o->access == ACCESS_WRITE)
                    l->leaves = o->value;
            }
        }
    }
}

static const struct section_label *label_of(const struct simulator *s, const struct section *x,
                                            size_t buffer)
{
    size_t index = (size_t)(x - s->p->sections.items);
    return &s->labels[index * s->p->buffers.n + buffer];
}

static enum status enter_section(struct simulator *s, const struct section *x, bool first_of_step)
{
    for (size_t i = 0; i < s->p->buffers.n; i++) {
        const struct buffer *b = &s->p->buffers.items[i];
        if (!is_root_buffer(s->p, b))
            continue;
        value_id entry = label_of(s, x, i)->entry;
        bool carried = b->storage < 0;
        if (entry == VALUE_NONE)
            continue;
        /* Carried memory starts a step with whatever was there; the first section fills it. */
        if (carried && first_of_step)
            s->label[b->value] = entry;
        if (s->label[b->value] == UNDEFINED)
            return FAIL(ERR_PROGRAM, "%s: '%s' is used in %s before anything filled it", s->p->name,
                        b->name, x->name);
        s->label[b->value] = entry;
        TRY(set_content(s, b, entry));
    }
    for (size_t i = 0; i < s->p->inputs.n; i++)
        TRY(set_content(s, &s->p->buffers.items[s->p->inputs.items[i].buffer],
                        s->p->inputs.items[i].value));
    return OK;
}

static enum status leave_section(struct simulator *s, const struct section *x)
{
    for (size_t i = 0; i < s->p->buffers.n; i++) {
        const struct buffer *b = &s->p->buffers.items[i];
        if (!is_root_buffer(s->p, b))
            continue;
        value_id leaves = label_of(s, x, i)->leaves;
        if (leaves != VALUE_NONE)
            s->label[b->value] = leaves;
        if (s->label[b->value] != UNDEFINED)
            TRY(has_content(s, b, s->label[b->value]));
    }
    return OK;
}

/* Storage whose newest value exists only on the device was not written back: the newest value any
 * operand of the section gives a root must be the one its home holds at the end. */
static enum status check_written_back(const struct simulator *s, const struct section *x)
{
    const struct program *p = s->p;
    for (int32_t k = x->first; k < x->first + x->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        for (int32_t n = 0; i->kind == INSTR_COMPUTE && n < i->n_operands; n++) {
            const struct operand *o = &p->operands.items[i->first_operand + n];
            if (o->access != ACCESS_WRITE || o->value == VALUE_NONE)
                continue;
            value_id root = value_root(p->graph, o->value);
            const struct value *v = graph_value(p->graph, root);
            if (v->producer != NODE_NONE || !role_is_persistent(v->role))
                continue;
            if (s->label[root] < o->value)
                return FAIL(ERR_PROGRAM, "%s: '%s' was updated in %s but not written back", p->name,
                            v->name, x->name);
        }
    }
    return OK;
}

static enum status simulate_section(struct simulator *s, const struct section *x,
                                    bool first_of_step)
{
    synchronise(s);
    TRY(enter_section(s, x, first_of_step));
    for (s->at = x->first; s->at < x->first + x->n; s->at++)
        TRY(simulate_instr(s, &s->p->instrs.items[s->at]));
    TRY(leave_section(s, x));
    return check_written_back(s, x);
}

static enum status check_outputs(struct simulator *s)
{
    for (size_t i = 0; i < s->p->outputs.n; i++) {
        const struct port *o = &s->p->outputs.items[i];
        TRY(has_content(s, &s->p->buffers.items[o->buffer],
                        value_view_root(s->p->graph, o->value)));
    }
    return OK;
}

/* ---- whole-program checks
 * ------------------------------------------------------------------------ */

static bool overlap(const struct buffer *a, const struct buffer *b)
{
    bool in_time = a->first <= b->last && b->first <= a->last;
    bool in_space = a->offset < b->offset + b->n_bytes && b->offset < a->offset + a->n_bytes;
    return a->tier == b->tier && in_time && in_space;
}

static enum status check_buffers(const struct program *p)
{
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *a = &p->buffers.items[i];
        if (a->merged_into >= 0)
            continue;
        for (size_t k = i + 1; k < p->buffers.n; k++) {
            const struct buffer *b = &p->buffers.items[k];
            if (b->merged_into < 0 && overlap(a, b))
                return FAIL(ERR_PROGRAM, "%s: '%s' and '%s' overlap in %s while both are alive",
                            p->name, a->name, b->name, tier_name(a->tier));
        }
    }
    return OK;
}

static enum status check_high_water(const struct simulator *s)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t reached = MAX(s->high_water[t], s->storage->n_bytes[t]);
        reached = align_up(reached, ARENA_ALIGN);
        if (reached != s->p->n_bytes[t])
            return FAIL(ERR_PROGRAM, "%s: %s reaches %lld bytes, but %lld were predicted",
                        s->p->name, tier_name((enum tier)t), (long long)reached,
                        (long long)s->p->n_bytes[t]);
    }
    return OK;
}

static enum status simulator_init(struct simulator *s)
{
    const struct program *p = s->p;
    TRY(mem_try_array(&s->events, (size_t)MAX(p->n_events, 1), sizeof(*s->events)));
    TRY(mem_try_array(&s->label, MAX(p->graph->values.n, (size_t)1), sizeof(*s->label)));
    TRY(mem_try_array(&s->labels, MAX(p->sections.n * p->buffers.n, (size_t)1),
                      sizeof(*s->labels)));
    find_labels(s);
    for (int t = 0; t < TIER_COUNT; t++) {
        struct region all = {.end = p->n_bytes[t], .content = UNDEFINED};
        TRY(vec_push(&s->map[t], all));
    }
    for (size_t v = 0; v < p->graph->values.n; v++)
        s->label[v] = UNDEFINED;
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->storage < 0)
            continue;
        s->label[b->value] = b->value;
        TRY(set_content(s, b, b->value));
    }
    return OK;
}

static enum status simulate_steps(struct simulator *s)
{
    for (int step = 0; step < 2; step++) {
        for (size_t i = 0; i < s->p->sections.n; i++) {
            const struct section *x = &s->p->sections.items[i];
            int repeats = strcmp(x->name, "micro") == 0 ? 2 : 1;
            for (int n = 0; n < repeats; n++)
                TRY(simulate_section(s, x, i == 0));
        }
        TRY(check_outputs(s));
    }
    return OK;
}

enum status program_check(const struct program *p, const struct storage *storage)
{
    struct simulator s = {.p = p, .storage = storage};
    enum status status;
    TRY(check_buffers(p));
    TRY_GOTO(simulator_init(&s), out);
    TRY_GOTO(simulate_steps(&s), out);
    TRY_GOTO(check_high_water(&s), out);
out:
    for (int t = 0; t < TIER_COUNT; t++)
        vec_release(&s.map[t]);
    mem_free(s.events);
    mem_free(s.label);
    mem_free(s.labels);
    return status;
}
