/* simulate.c: the check of invariant 2, second half: contents of memory and order between queues.
 *
 * For every tier there is a map from byte ranges to the bytes of a value they hold, who wrote them
 * and who read them since; for every queue, how much of every other queue is known to be finished
 * (a vector clock, carried by events). Instructions are walked in program order, and:
 *
 *   1. a read finds its whole range holding those bytes of the value it expects, be it from one
 *      write or from several slices, and the writes are ordered before;
 *   2. a write is ordered after every earlier write and read of its range;
 *   3. roots end each section in their home holding what the graph says, outputs in their ports;
 *   4. the high-water mark of each tier is the predicted one.
 *
 * Conflicting uses being ordered, every interleaving the queues may take gives what program order
 * gives. Everything is finished between sections and only roots reach across, so a section is
 * proved on its own: from what its roots hold on entry to what they must hold when it ends. A
 * micro-step, the last one too, begins where the one before it ended: the graph calls what it adds
 * to by the same name, whether it was just cleared or has terms already.
 *
 * A section that runs updates of the step before tells the two steps apart: what belongs to the one
 * before has a name of its own (late_name), until the newest version of a root is v0 of this step.
 * So an update that reads this step's gradient, or a forward pass that reads a weight before its
 * update, does not find what it expects. A copy moves whichever of the two it finds.
 */
#include <string.h>

#include "program/emit.h"

enum { UNDEFINED = -2 }; /* content nobody may read; VALUE_NONE is workspace */

struct region {
    int64_t begin, end;
    value_id content;
    int64_t value_at; /* the first byte of the content that it holds */
    enum queue writer;
    int64_t written;           /* writer's position */
    int64_t read[QUEUE_COUNT]; /* last reading position of each queue */
};

/* By address; what is shifted when one comes in between is small. */
struct tier_map {
    VEC(int32_t) order; /* of regions */
    VEC(struct region) regions;
    VEC(int32_t) unused; /* of regions */
};

struct clocks {
    int64_t seen[QUEUE_COUNT];
    bool recorded;
};

struct simulator {
    const struct program *p;
    struct tier_map map[TIER_COUNT];
    int64_t position[QUEUE_COUNT];    /* instructions executed on each queue */
    struct clocks queue[QUEUE_COUNT]; /* what each queue knows to be finished */
    struct clocks *events;            /* snapshot at the record */
    const struct section_rule *rule;  /* of the section */
    value_id *root;                   /* of each value */
    value_id *held;                   /* per root: what its home holds at a section's border */
    value_id *newest;                 /* per root: what it holds when a whole step is done */
    bool *carried;                    /* per root: made in one step and read in the next one */
    int64_t high_water[TIER_COUNT];
    int32_t at; /* instruction, for messages */
};

static enum status fail_at(const struct simulator *s, const char *what, const struct operand *o)
{
    const struct instr *i = &s->p->instrs.items[s->at];
    const char *op =
        i->kind == INSTR_COMPUTE ? op_get(graph_node(s->p->graph, i->node)->op)->name : "copy";
    return FAIL(ERR_PROGRAM, "%s: instruction %d (%s on %s) %s: '%s' at %s+%lld, %lld bytes",
                s->p->name, s->at, op, queue_name(i->queue), what,
                s->p->buffers.items[o->buffer].name, tier_name(o->tier), (long long)o->offset,
                (long long)o->n_bytes);
}

/* ---- the map of a tier ----------------------------------------------------------------------- */

static struct region *region_at(const struct simulator *s, enum tier t, size_t k)
{
    return &s->map[t].regions.items[s->map[t].order.items[k]];
}

/* Puts r at place k of the order, before what is there. */
static enum status insert_region(struct tier_map *m, size_t k, struct region r)
{
    int32_t index = (int32_t)m->regions.n;
    if (m->unused.n > 0) {
        index = m->unused.items[--m->unused.n];
        m->regions.items[index] = r;
    } else {
        TRY(vec_push(&m->regions, r));
    }
    TRY(vec_push(&m->order, index)); /* makes room; then shift */
    memmove(&m->order.items[k + 1], &m->order.items[k], (m->order.n - 1 - k) * sizeof(index));
    m->order.items[k] = index;
    return OK;
}

/* Splits regions so that one begins exactly at `offset`; its index. */
static enum status split(struct simulator *s, enum tier t, int64_t offset, size_t *index)
{
    size_t low = 0, high = s->map[t].order.n;
    while (low < high) { /* first region that ends after offset */
        size_t middle = (low + high) / 2;
        if (region_at(s, t, middle)->end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    *index = low;
    if (low == s->map[t].order.n || region_at(s, t, low)->begin == offset)
        return OK;
    struct region tail = *region_at(s, t, low);
    tail.value_at += offset - tail.begin;
    tail.begin = offset;
    region_at(s, t, low)->end = offset;
    *index = low + 1;
    return insert_region(&s->map[t], low + 1, tail);
}

static enum status range(struct simulator *s, enum tier t, int64_t offset, int64_t n_bytes,
                         size_t *first, size_t *end)
{
    TRY(split(s, t, offset, first));
    return split(s, t, offset + n_bytes, end); /* lies above: first stays what it is */
}

/* One write over many regions leaves one: the map stays as small as what is alive. */
static enum status unite(struct simulator *s, enum tier t, size_t first, size_t end)
{
    struct tier_map *m = &s->map[t];
    if (end - first < 2)
        return OK;
    region_at(s, t, first)->end = region_at(s, t, end - 1)->end;
    for (size_t k = first + 1; k < end; k++)
        TRY(vec_push(&m->unused, m->order.items[k]));
    memmove(&m->order.items[first + 1], &m->order.items[end],
            (m->order.n - end) * sizeof(*m->order.items));
    m->order.n -= end - first - 1;
    return OK;
}

/* Does the region hold the value whose first byte would be at `origin`? */
static bool holds(const struct region *r, value_id value, int64_t origin)
{
    return r->content == value && r->value_at == r->begin - origin;
}

/* Sets content without an instruction: what was there before the section. */
static enum status set_content(struct simulator *s, const struct buffer *b, value_id content)
{
    size_t first, end;
    TRY(range(s, b->tier, b->offset, b->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        struct region *r = region_at(s, b->tier, k);
        r->content = content;
        r->value_at = r->begin - b->offset;
    }
    return OK;
}

static enum status has_content(struct simulator *s, const struct buffer *b, value_id content,
                               const char *section)
{
    size_t first, end;
    TRY(range(s, b->tier, b->offset, b->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        if (!holds(region_at(s, b->tier, k), content, b->offset))
            return FAIL(ERR_PROGRAM, "%s: when %s ends, '%s' in %s must hold value %d, not %d",
                        s->p->name, section, b->name, tier_name(b->tier), content,
                        region_at(s, b->tier, k)->content);
    }
    return OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* What the step before calls v. Inputs, and what it does not change, are one and the same for both
 * steps. */
static value_id late_name(const struct simulator *s, value_id v)
{
    const struct graph *g = s->p->graph;
    value_id root = s->root[v];
    bool from_outside = graph_value(g, root)->producer == NODE_NONE;
    if (from_outside && (graph_value(g, root)->role == ROLE_INPUT || s->newest[root] == v))
        return root;
    return v + (value_id)g->values.n;
}

/* What the bytes of an operand are called. */
static value_id name_of(struct simulator *s, const struct instr *i, const struct operand *o)
{
    if (o->value == VALUE_NONE || !s->rule->late)
        return o->value;
    if (i->kind == INSTR_COMPUTE)
        return s->rule->late >> graph_node(s->p->graph, i->node)->pass & 1u ? late_name(s, o->value)
                                                                            : o->value;
    size_t first, end;
    const struct operand *source = &s->p->operands.items[i->first_operand];
    value_id late = o->value + (value_id)s->p->graph->values.n;
    bool found = source->n_bytes > 0 &&
                 range(s, source->tier, source->offset, source->n_bytes, &first, &end) == OK;
    return found && region_at(s, source->tier, first)->content == late ? late : o->value;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static bool knows(const struct simulator *s, enum queue q, enum queue other, int64_t position)
{
    return q == other || position <= s->queue[q].seen[other];
}

static enum status simulate_read(struct simulator *s, enum queue q, const struct operand *o,
                                 value_id name)
{
    size_t first, end;
    TRY(range(s, o->tier, o->offset, o->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        struct region *r = region_at(s, o->tier, k);
        if (r->content == UNDEFINED)
            return fail_at(s, "reads what was never written", o);
        if (!holds(r, name, o->offset - o->value_at))
            return fail_at(s, "reads what was overwritten", o);
        if (!knows(s, q, r->writer, r->written))
            return fail_at(s, "reads without waiting for the write", o);
        r->read[q] = s->position[q];
    }
    return OK;
}

static enum status simulate_write(struct simulator *s, enum queue q, const struct operand *o,
                                  value_id name)
{
    size_t first, end;
    TRY(range(s, o->tier, o->offset, o->n_bytes, &first, &end));
    for (size_t k = first; k < end; k++) {
        struct region *r = region_at(s, o->tier, k);
        if (!knows(s, q, r->writer, r->written))
            return fail_at(s, "overwrites without waiting for the last write", o);
        for (int other = 0; other < QUEUE_COUNT; other++) {
            if (!knows(s, q, (enum queue)other, r->read[other]))
                return fail_at(s, "overwrites without waiting for a read", o);
        }
        r->content = name;
        r->value_at = o->value_at + (r->begin - o->offset);
        r->writer = q;
        r->written = s->position[q];
        memset(r->read, 0, sizeof(r->read));
    }
    return unite(s, o->tier, first, end);
}

static enum status simulate_event(struct simulator *s, const struct instr *i)
{
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

/* Some ops only overwrite what they are given: what that holds does not matter. */
static bool is_ignored(const struct simulator *s, const struct instr *i)
{
    return i->kind == INSTR_COMPUTE && op_get(graph_node(s->p->graph, i->node)->op)->ignores_inputs;
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
        if (o[k].access == ACCESS_READ && !is_ignored(s, i))
            TRY(simulate_read(s, i->queue, &o[k], name_of(s, i, &o[k])));
    }
    for (int32_t k = 0; k < i->n_operands; k++) {
        if (o[k].access == ACCESS_WRITE)
            TRY(simulate_write(s, i->queue, &o[k], name_of(s, i, &o[k])));
    }
    return OK;
}

/* ---- sections -------------------------------------------------------------------------------- */

/* What the home of a root holds when the section begins. */
static value_id held_before(const struct simulator *s, value_id root)
{
    bool is_made = graph_value(s->p->graph, root)->producer != NODE_NONE;
    if (is_made && !(s->rule->late && s->carried[root]))
        return UNDEFINED;
    return s->rule->late ? late_name(s, s->held[root]) : s->held[root];
}

/* Nothing in flight, nothing known to be anywhere but in the homes of roots and the input ports. */
static enum status enter_section(struct simulator *s)
{
    const struct program *p = s->p;
    memset(s->position, 0, sizeof(s->position));
    memset(s->queue, 0, sizeof(s->queue));
    memset(s->events, 0, (size_t)MAX(p->n_events, 1) * sizeof(*s->events));
    for (int t = 0; t < TIER_COUNT; t++) {
        struct region all = {.end = p->n_bytes[t], .content = UNDEFINED};
        s->map[t].order.n = s->map[t].regions.n = s->map[t].unused.n = 0;
        TRY(insert_region(&s->map[t], 0, all));
    }
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->storage >= 0 || b->carried)
            TRY(set_content(s, b, held_before(s, b->value)));
    }
    for (size_t i = 0; i < p->inputs.n; i++)
        TRY(set_content(s, &p->buffers.items[p->inputs.items[i].buffer], p->inputs.items[i].value));
    return OK;
}

static enum status leave_section(struct simulator *s, const struct section *x)
{
    const struct program *p = s->p;
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->storage >= 0 || (b->carried && s->rule->carries))
            TRY(has_content(s, b, s->held[b->value], x->name));
    }
    for (size_t i = 0; s->rule->ends && i < p->outputs.n; i++) {
        const struct port *o = &p->outputs.items[i];
        TRY(has_content(s, &p->buffers.items[o->buffer], value_view_root(p->graph, o->value),
                        x->name));
    }
    return OK;
}

/* A root that some node of the graph updates has a home, or its update would be lost unseen. */
static enum status check_homes(const struct simulator *s)
{
    const struct graph *g = s->p->graph;
    bool *has_home;
    TRY(mem_try_array(&has_home, MAX(g->values.n, (size_t)1), sizeof(*has_home)));
    for (size_t i = 0; i < s->p->buffers.n; i++) {
        const struct buffer *b = &s->p->buffers.items[i];
        if (b->storage >= 0 || b->carried)
            has_home[b->value] = true;
    }
    enum status status = OK;
    for (value_id v = 0; (size_t)v < g->values.n && status == OK; v++) {
        const struct value *x = graph_value(g, v);
        bool updated = x->producer == NODE_NONE && s->newest[v] != v;
        if (updated && !has_home[v] && x->role != ROLE_INPUT)
            status = FAIL(ERR_PROGRAM, "%s: '%s' is updated but has no home", s->p->name,
                          graph_value(g, v)->name);
    }
    mem_free(has_home);
    return status;
}

static enum status simulate_sections(struct simulator *s, const struct section_rule *rules)
{
    const struct program *p = s->p;
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *section = &p->sections.items[x];
        s->rule = &rules[x];
        section_held(p->graph, s->root, rules[x].late ? ~rules[x].late : rules[x].before, false,
                     s->held);
        TRY(enter_section(s));
        for (s->at = section->first; s->at < section->first + section->n; s->at++)
            TRY(simulate_instr(s, &p->instrs.items[s->at]));
        section_held(p->graph, s->root, rules[x].before | rules[x].passes, rules[x].alone, s->held);
        TRY(leave_section(s, section));
    }
    return check_homes(s);
}

static enum status check_high_water(const struct simulator *s, const struct storage *storage)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t reached =
            align_up(MAX(s->high_water[t], storage->n_bytes[t]), tier_align((enum tier)t));
        if (reached != s->p->n_bytes[t])
            return FAIL(ERR_PROGRAM, "%s: %s reaches %lld bytes, but %lld were predicted",
                        s->p->name, tier_name((enum tier)t), (long long)reached,
                        (long long)s->p->n_bytes[t]);
    }
    return OK;
}

enum status simulate(const struct program *p, const struct storage *storage,
                     const struct section_rule *rules)
{
    struct simulator s = {.p = p};
    enum status status;
    TRY_GOTO(mem_try_array(&s.events, (size_t)MAX(p->n_events, 1), sizeof(*s.events)), out);
    size_t n = MAX(p->graph->values.n, (size_t)1);
    TRY_GOTO(mem_try_array(&s.root, n, sizeof(*s.root)), out);
    TRY_GOTO(mem_try_array(&s.held, n, sizeof(*s.held)), out);
    TRY_GOTO(mem_try_array(&s.newest, n, sizeof(*s.newest)), out);
    TRY_GOTO(mem_try_array(&s.carried, n, sizeof(*s.carried)), out);
    graph_find_roots(p->graph, s.root);
    section_held(p->graph, s.root, ~0u, false, s.newest);
    section_carried(p->graph, rules, s.carried);
    TRY_GOTO(simulate_sections(&s, rules), out);
    TRY_GOTO(check_high_water(&s, storage), out);
out:
    for (int t = 0; t < TIER_COUNT; t++) {
        vec_release(&s.map[t].order);
        vec_release(&s.map[t].regions);
        vec_release(&s.map[t].unused);
    }
    mem_free(s.events);
    mem_free(s.root);
    mem_free(s.held);
    mem_free(s.newest);
    mem_free(s.carried);
    return status;
}
