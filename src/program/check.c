/* check.c: the check of invariant 2, first half: what the program says agrees with the graph.
 *
 *   1. Sections are those of a step, end to end; indices stay inside their tables.
 *   2. A compute instruction is a node of the graph, in its section: operand i is input or output
 *      i, with the node's sizes, on the device; workspace is what the kernel asks for. Or it is a
 *      slice of a node: these come in order, and together they are the node.
 *   3. Memory is shared inside one instruction only where the op allows it.
 *   4. A copy moves one value, or the same bytes of it, between two places.
 *   5. An operand lies in its buffer while that is alive; buffers alive at the same time do not
 *      overlap, and storage is where it was given out.
 *
 * With that the operands can be trusted to say what an instruction touches, and simulate.c follows
 * contents and order.
 */
#include <stdlib.h>
#include <string.h>

#include "program/emit.h"

struct checker {
    const struct program *p;
    const struct storage *storage;
    int32_t at;    /* instruction */
    int64_t *done; /* per node: elements that its slices have worked on in this section */
};

static enum status fail_at(const struct checker *c, const char *what, int operand)
{
    return FAIL(ERR_PROGRAM, "%s: instruction %d, operand %d: %s", c->p->name, c->at, operand,
                what);
}

/* ---- buffers and storage --------------------------------------------------------------------- */

static enum status check_storage_buffer(const struct program *p, const struct storage *storage,
                                        const struct buffer *b)
{
    if ((size_t)b->storage >= storage->entries.n)
        return FAIL(ERR_PROGRAM, "%s: '%s' has no storage entry", p->name, b->name);
    const struct storage_entry *e = &storage->entries.items[b->storage];
    if (b->tier != e->tier || b->offset != e->offset || b->n_bytes != e->n_bytes)
        return FAIL(ERR_PROGRAM, "%s: '%s' is not where its storage is", p->name, b->name);
    return OK;
}

/* A home has room for its value, all of it. */
static enum status check_home(const struct program *p, const struct buffer *b)
{
    if (b->value == VALUE_NONE)
        return FAIL(ERR_PROGRAM, "%s: '%s' is the home of no value", p->name, b->name);
    if (b->value_at != 0 || b->n_bytes != value_bytes(p->graph, b->value))
        return FAIL(ERR_PROGRAM, "%s: '%s' is the home of a part of its value", p->name, b->name);
    return OK;
}

/* Nothing but what lives throughout reaches from one section into another. */
static bool crosses_sections(const struct program *p, const struct buffer *b)
{
    for (size_t x = 0; x < p->sections.n; x++) {
        int32_t next = p->sections.items[x].first + p->sections.items[x].n;
        if (b->first < next)
            return b->last >= next;
    }
    return false;
}

static enum status check_buffer(const struct program *p, const struct storage *storage, int32_t i)
{
    const struct buffer *b = &p->buffers.items[i];
    bool whole = b->first == 0 && b->last == MAX((int32_t)p->instrs.n - 1, 0);
    if (b->tier < 0 || b->tier >= TIER_COUNT || b->n_bytes < 0 || b->offset < 0 ||
        b->offset % tier_align(b->tier) || b->n_bytes > p->n_bytes[b->tier] - b->offset)
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') is outside its arena", p->name, i, b->name);
    if (b->first < 0 || b->last < b->first || (size_t)b->last >= MAX(p->instrs.n, (size_t)1))
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') has no lifetime", p->name, i, b->name);
    if (!whole && crosses_sections(p, b))
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') outlives its section", p->name, i, b->name);
    if (b->value_at < 0 ||
        (b->value != VALUE_NONE && (b->value < 0 || (size_t)b->value >= p->graph->values.n)))
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') is of no value", p->name, i, b->name);
    if ((b->storage >= 0 || b->carried) && (!whole || b->merged_into >= 0))
        return FAIL(ERR_PROGRAM, "%s: '%s' must outlive the section", p->name, b->name);
    if (b->storage >= 0 || b->carried)
        TRY(check_home(p, b));
    if (b->storage >= 0)
        return check_storage_buffer(p, storage, b);
    if (b->offset < storage->n_bytes[b->tier] && b->n_bytes > 0)
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') lies inside storage", p->name, i, b->name);
    if (b->merged_into < 0)
        return OK;
    /* Merged buffers point at earlier ones, so chains end. */
    if (b->merged_into >= i)
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') is merged into a later one", p->name, i,
                    b->name);
    const struct buffer *into = &p->buffers.items[b->merged_into];
    if (into->tier != b->tier || into->offset != b->offset || into->storage >= 0)
        return FAIL(ERR_PROGRAM, "%s: buffer %d ('%s') is not where it was merged into", p->name, i,
                    b->name);
    return OK;
}

static int by_birth(const void *a, const void *b)
{
    const struct buffer *x = *(const struct buffer *const *)a,
                        *y = *(const struct buffer *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Buffers by offset: those that live are disjoint; dead ones among them wait to be dropped. */
struct live {
    const struct buffer **items;
    size_t n, n_after_drop;
};

/* Once in a while: to look at all for every birth would take most of the check. */
static void drop_dead(struct live *x, int32_t now)
{
    enum { MOST_DEAD = 64 };
    size_t kept = 0;
    if (x->n < x->n_after_drop + MOST_DEAD)
        return;
    for (size_t i = 0; i < x->n; i++) {
        if (x->items[i]->last >= now)
            x->items[kept++] = x->items[i];
    }
    x->n = x->n_after_drop = kept;
}

/* How many lie at b's offset or below. */
static size_t place_of(const struct live *x, const struct buffer *b)
{
    size_t low = 0, high = x->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (x->items[middle]->offset <= b->offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds b, which is born; it may overlap none that lives. */
static enum status insert_live(const struct program *p, struct live *x, const struct buffer *b)
{
    drop_dead(x, b->first);
    size_t at = place_of(x, b), below = at, above = at;
    while (below > 0 && x->items[below - 1]->last < b->first)
        below--;
    while (above < x->n && x->items[above]->last < b->first)
        above++;
    const struct buffer *other = NULL;
    if (below > 0 && x->items[below - 1]->offset + x->items[below - 1]->n_bytes > b->offset)
        other = x->items[below - 1];
    else if (above < x->n && b->offset + b->n_bytes > x->items[above]->offset)
        other = x->items[above];
    if (other)
        return FAIL(ERR_PROGRAM, "%s: '%s' and '%s' overlap in %s while both are alive", p->name,
                    other->name, b->name, tier_name(b->tier));
    memmove(&x->items[at + 1], &x->items[at], (x->n - at) * sizeof(*x->items));
    x->items[at] = b;
    x->n++;
    return OK;
}

/* Sweeps over births; storage is known to be disjoint and below the rest. */
static enum status check_overlaps(const struct program *p)
{
    const struct buffer **order = NULL;
    struct live live = {0};
    enum status status = OK;
    TRY_GOTO(mem_try_array(&order, MAX(p->buffers.n, (size_t)1), sizeof(*order)), out);
    TRY_GOTO(mem_try_array(&live.items, MAX(p->buffers.n, (size_t)1), sizeof(*live.items)), out);
    for (int t = 0; t < TIER_COUNT; t++) {
        size_t n = 0;
        live.n = live.n_after_drop = 0;
        for (size_t i = 0; i < p->buffers.n; i++) {
            const struct buffer *b = &p->buffers.items[i];
            if ((int)b->tier == t && b->storage < 0 && b->merged_into < 0 && b->n_bytes > 0)
                order[n++] = b;
        }
        qsort(order, n, sizeof(*order), by_birth);
        for (size_t i = 0; i < n && status == OK; i++)
            status = insert_live(p, &live, order[i]);
    }
out:
    mem_free(order);
    mem_free(live.items);
    return status;
}

static enum status check_storage(const struct program *p, const struct storage *storage)
{
    int64_t end[TIER_COUNT] = {0};
    for (size_t i = 0; i < storage->entries.n; i++) {
        const struct storage_entry *e = &storage->entries.items[i];
        if (e->offset < end[e->tier] || e->n_bytes > storage->n_bytes[e->tier] - e->offset)
            return FAIL(ERR_PROGRAM, "%s: storage '%s' overlaps the entry before it", p->name,
                        e->name);
        end[e->tier] = e->offset + e->n_bytes;
    }
    return OK;
}

static enum status check_buffers(const struct program *p, const struct storage *storage)
{
    TRY(check_storage(p, storage));
    for (int32_t i = 0; (size_t)i < p->buffers.n; i++)
        TRY(check_buffer(p, storage, i));
    return check_overlaps(p);
}

/* ---- operands -------------------------------------------------------------------------------- */

static enum status check_operand(const struct checker *c, int k, const struct operand *o)
{
    if (o->buffer < 0)
        return o->access == ACCESS_NONE ? OK : fail_at(c, "touches no buffer", k);
    if ((size_t)o->buffer >= c->p->buffers.n || o->access == ACCESS_NONE)
        return fail_at(c, "is of no buffer", k);
    const struct buffer *b = &c->p->buffers.items[o->buffer];
    const struct buffer *root = &c->p->buffers.items[buffer_root(c->p, o->buffer)];
    if (o->tier != b->tier || o->n_bytes < 0 || o->value_at < b->value_at ||
        o->n_bytes > b->n_bytes - (o->value_at - b->value_at) || o->offset != operand_offset(b, o))
        return fail_at(c, "lies outside its buffer", k);
    if (c->at < root->first || c->at > root->last)
        return fail_at(c, "uses a buffer that is not alive", k);
    if (o->value != VALUE_NONE && (o->value < 0 || (size_t)o->value >= c->p->graph->values.n))
        return fail_at(c, "holds no value", k);
    return OK;
}

static enum status need_operand(const struct checker *c, const struct instr *i, int k,
                                enum access access, value_id value)
{
    const struct operand *o = &c->p->operands.items[i->first_operand + k];
    const struct node *n = graph_node(c->p->graph, i->node);
    struct byte_range range = slice_bytes(c->p->graph, n, i->slice, k);
    if (value == VALUE_NONE)
        return o->buffer < 0 ? OK : fail_at(c, "the node has no such input", k);
    if (o->access != access || o->value != value)
        return fail_at(c, "is not the node's", k);
    if (o->n_bytes != range.n_bytes || o->value_at != range.at)
        return fail_at(c, "has the wrong size", k);
    return o->tier == TIER_DEVICE ? OK : fail_at(c, "is not on the device", k);
}

static bool share_memory(const struct operand *a, const struct operand *b)
{
    return a->buffer >= 0 && b->buffer >= 0 && a->tier == b->tier &&
           a->offset < b->offset + b->n_bytes && b->offset < a->offset + a->n_bytes;
}

/* May output `out` lie exactly on input `in`? Updates must, where they apply. */
static bool may_share(const struct node *n, int out, int in)
{
    const struct alias_rule *a = op_get(n->op)->aliases;
    for (; a && a->kind != ALIAS_NONE; a++) {
        if (a->kind != ALIAS_VIEW && a->out == out && a->in == in)
            return true;
    }
    return false;
}

static enum status check_sharing(const struct checker *c, const struct node *n,
                                 const struct operand *o, int32_t n_operands)
{
    for (int out = 0; out < n->n_out; out++) {
        const struct operand *w = &o[n->n_in + out];
        const struct alias_rule *a = node_alias(n, out);
        if (a && (o[a->in].offset != w->offset || o[a->in].tier != w->tier))
            return fail_at(c, "is not where the value it updates is", n->n_in + out);
        int n_shared = 0;
        for (int k = 0; k < n_operands; k++) {
            if (k == n->n_in + out || !share_memory(w, &o[k]))
                continue;
            bool allowed = k < n->n_in && may_share(n, out, k) && o[k].offset == w->offset &&
                           o[k].n_bytes == w->n_bytes;
            if (!allowed || ++n_shared > 1)
                return fail_at(c, "shares memory with another operand", n->n_in + out);
        }
    }
    const struct operand *last = &o[n_operands - 1];
    for (int k = 0; n_operands > n->n_in + n->n_out && k < n->n_in; k++) {
        if (share_memory(last, &o[k]))
            return fail_at(c, "workspace lies on an input", k);
    }
    return OK;
}

/* The kernel takes the call, and its workspace is as large as it asks for. */
static enum status check_kernel(const struct checker *c, const struct instr *i,
                                const struct node *n, const struct operand *o)
{
    struct tensor *in, out[MAX_OUTPUTS];
    struct op_call call;
    TRY(mem_try_array(&in, (size_t)MAX(n->n_in, 1), sizeof(*in)));
    node_call_slice(c->p->graph, n, i->slice, in, out, &call);
    bool declined = i->kernel->declines && i->kernel->declines(&call, &c->p->env);
    int64_t needed = 0;
    if (!declined && i->kernel->workspace)
        needed = i->kernel->workspace(&call, &c->p->env);
    mem_free(in);
    if (declined)
        return fail_at(c, "the kernel declines the call", 0);
    if (!i->has_workspace)
        return needed == 0 ? OK : fail_at(c, "workspace is missing", n->n_in + n->n_out);
    const struct operand *w = &o[n->n_in + n->n_out];
    if (w->n_bytes != needed || w->access != ACCESS_WRITE || w->value != VALUE_NONE ||
        w->tier != TIER_DEVICE)
        return fail_at(c, "is not the workspace the kernel asks for", n->n_in + n->n_out);
    return OK;
}

/* Slices come in order, so that they leave nothing out and nothing is updated twice. */
static enum status check_slice(const struct checker *c, const struct instr *i, const struct node *n)
{
    int64_t *done = &c->done[i->node], all = node_sliceable(c->p->graph, n);
    if (!slice_is_valid(c->p->graph, n, i->slice))
        return fail_at(c, "is no slice of the node", 0);
    if (i->slice.n == 0) {
        if (*done > 0 && *done < all)
            return fail_at(c, "the node is a part done", 0);
        *done = all;
        return OK;
    }
    if (*done == all && i->slice.first == 0 && !node_alias(n, 0))
        *done = 0; /* it updates nothing, and is made again for another reader */
    if (i->slice.first != *done)
        return fail_at(c, "the slice does not go on where the one before it ended", 0);
    *done += i->slice.n;
    return OK;
}

static enum status check_compute(const struct checker *c, const struct instr *i,
                                 const struct section_rule *rule)
{
    const struct graph *g = c->p->graph;
    if (i->node < 0 || (size_t)i->node >= g->nodes.n || !i->kernel || i->queue != QUEUE_COMPUTE)
        return fail_at(c, "is of no node, kernel or queue", 0);
    const struct node *n = graph_node(g, i->node);
    const struct operand *o = &c->p->operands.items[i->first_operand];
    const struct alias_rule *view = node_alias(n, 0);
    bool runs = section_has(rule, n) || (rule->late >> n->pass & 1u);
    if (!runs || (n->n_out == 1 && view && view->kind == ALIAS_VIEW))
        return fail_at(c, "the node does not run in this section", 0);
    if (i->n_operands != n->n_in + n->n_out + (i->has_workspace ? 1 : 0))
        return fail_at(c, "the node has another number of operands", i->n_operands);
    TRY(check_slice(c, i, n));
    for (int k = 0; k < n->n_in; k++) {
        value_id in = n->in[k] == VALUE_NONE ? VALUE_NONE : value_view_root(g, n->in[k]);
        TRY(need_operand(c, i, k, ACCESS_READ, in));
    }
    for (int k = 0; k < n->n_out; k++)
        TRY(need_operand(c, i, n->n_in + k, ACCESS_WRITE, n->out[k]));
    TRY(check_kernel(c, i, n, o));
    return check_sharing(c, n, o, i->n_operands);
}

static enum status check_copy(const struct checker *c, const struct instr *i)
{
    const struct operand *o = &c->p->operands.items[i->first_operand];
    if (i->n_operands != 2 || o[0].access != ACCESS_READ || o[1].access != ACCESS_WRITE)
        return fail_at(c, "a copy reads one place and writes another", 0);
    if (o[0].value == VALUE_NONE || o[0].value != o[1].value)
        return fail_at(c, "a copy moves one value", 1);
    int64_t n_bytes = value_bytes(c->p->graph, o[0].value);
    if (o[0].n_bytes != o[1].n_bytes || o[0].value_at != o[1].value_at || o[0].value_at > n_bytes ||
        o[0].n_bytes > n_bytes - o[0].value_at)
        return fail_at(c, "has the wrong size", 0);
    return share_memory(&o[0], &o[1]) ? fail_at(c, "copies onto itself", 1) : OK;
}

static enum status check_instr(const struct checker *c, const struct section_rule *rule)
{
    const struct instr *i = &c->p->instrs.items[c->at];
    bool counted = i->first_operand >= 0 && i->n_operands >= 0 &&
                   (size_t)i->first_operand + (size_t)i->n_operands <= c->p->operands.n;
    if (!counted || i->queue < 0 || i->queue >= QUEUE_COUNT)
        return fail_at(c, "no such operands or queue", 0);
    for (int32_t k = 0; k < i->n_operands; k++)
        TRY(check_operand(c, k, &c->p->operands.items[i->first_operand + k]));
    switch (i->kind) {
    case INSTR_COMPUTE:
        return check_compute(c, i, rule);
    case INSTR_COPY:
        return check_copy(c, i);
    case INSTR_RECORD:
    case INSTR_WAIT:
        if (i->event < 0 || i->event >= c->p->n_events || i->n_operands != 0)
            return fail_at(c, "no such event", 0);
        return OK;
    }
    return fail_at(c, "no such instruction", 0);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static enum status check_port(const struct program *p, const struct port *x)
{
    bool found = x->buffer >= 0 && (size_t)x->buffer < p->buffers.n && x->value >= 0 &&
                 (size_t)x->value < p->graph->values.n;
    if (!found)
        return FAIL(ERR_PROGRAM, "%s: port '%s' has no buffer", p->name, x->name);
    const struct buffer *b = &p->buffers.items[x->buffer];
    bool whole = b->first == 0 && b->last == MAX((int32_t)p->instrs.n - 1, 0);
    if (b->tier != TIER_HOST || b->offset != x->offset || b->n_bytes != x->n_bytes ||
        x->n_bytes != value_bytes(p->graph, x->value) || b->value_at != 0 || b->merged_into >= 0 ||
        !whole)
        return FAIL(ERR_PROGRAM, "%s: port '%s' is not its buffer", p->name, x->name);
    return OK;
}

static enum status check_ports(const struct program *p)
{
    const struct graph *g = p->graph;
    for (size_t i = 0; i < p->inputs.n; i++) {
        TRY(check_port(p, &p->inputs.items[i]));
        const struct value *v = graph_value(g, p->inputs.items[i].value);
        if (v->role != ROLE_INPUT || v->producer != NODE_NONE)
            return FAIL(ERR_PROGRAM, "%s: port '%s' is no input of the graph", p->name,
                        p->inputs.items[i].name);
    }
    if (p->outputs.n != g->outputs.n)
        return FAIL(ERR_PROGRAM, "%s: the graph has %zu outputs, the program %zu", p->name,
                    g->outputs.n, p->outputs.n);
    for (size_t i = 0; i < p->outputs.n; i++) {
        TRY(check_port(p, &p->outputs.items[i]));
        if (p->outputs.items[i].value != g->outputs.items[i].value)
            return FAIL(ERR_PROGRAM, "%s: output '%s' is of another value", p->name,
                        p->outputs.items[i].name);
    }
    return OK;
}

static enum status check_section(struct checker *c, const struct section *s,
                                 const struct section_rule *rule)
{
    const struct graph *g = c->p->graph;
    for (size_t k = 0; k < g->nodes.n; k++)
        c->done[k] = 0;
    for (c->at = s->first; c->at < s->first + s->n; c->at++)
        TRY(check_instr(c, rule));
    for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
        if (c->done[k] > 0 && c->done[k] < node_sliceable(g, graph_node(g, k)))
            return FAIL(ERR_PROGRAM, "%s: when %s ends, slices of node %d have made %lld elements",
                        c->p->name, s->name, k, (long long)c->done[k]);
    }
    return OK;
}

enum status program_check(const struct program *p, const struct storage *storage)
{
    const struct section_rule *rules = section_rules_of(p);
    if (!rules)
        return FAIL(ERR_PROGRAM, "%s: the sections are not those of a step", p->name);
    if (p->n_events < 0 || (size_t)p->n_events > p->instrs.n)
        return FAIL(ERR_PROGRAM, "%s: more events than instructions", p->name);
    TRY(check_buffers(p, storage));
    TRY(check_ports(p));
    struct checker c = {.p = p, .storage = storage};
    TRY(mem_try_array(&c.done, MAX(p->graph->nodes.n, (size_t)1), sizeof(*c.done)));
    enum status status = OK;
    for (size_t x = 0; x < p->sections.n && status == OK; x++)
        status = check_section(&c, &p->sections.items[x], &rules[x]);
    mem_free(c.done);
    return status == OK ? simulate(p, storage, rules) : status;
}
