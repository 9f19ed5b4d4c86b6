/* timeline.c: bytes by class over the instructions, gathered into columns. */
#include "program/timeline.h"

#include <math.h>
#include <string.h>

#include "program/emit.h"

const enum memory_class timeline_stack[MEMORY_CLASS_COUNT] = {
    MEMORY_FROZEN,      MEMORY_WEIGHTS,   MEMORY_MASTERS, MEMORY_OPTIMIZER, MEMORY_GRADIENTS,
    MEMORY_ACTIVATIONS, MEMORY_RECOMPUTE, MEMORY_LOGITS,  MEMORY_WORKSPACE, MEMORY_STAGING,
};

bool timeline_has(const struct timeline *t, enum memory_class kind)
{
    bool any = false;
    for (int k = 0; k < t->n_columns; k++)
        any |= t->columns[k].by_class[kind] > 0;
    return any;
}

/* Bytes by class alive at each instruction, from the differences at births and deaths. */
static void sweep(const struct program *p, const struct storage *storage, enum tier tier,
                  struct timeline_column *at)
{
    size_t n = MAX(p->instrs.n, (size_t)1);
    for (size_t i = 0; i < storage->entries.n; i++) {
        const struct storage_entry *e = &storage->entries.items[i];
        if (e->tier == tier)
            at[0].by_class[e->kind] += align_up(e->n_bytes, tier_align(e->tier));
    }
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->tier != tier || b->storage >= 0 || b->merged_into >= 0)
            continue;
        int64_t n_bytes = align_up(b->n_bytes, tier_align(b->tier));
        at[b->first].by_class[b->kind] += n_bytes;
        if ((size_t)b->last + 1 < n)
            at[b->last + 1].by_class[b->kind] -= n_bytes;
    }
    for (size_t k = 0; k < n; k++) {
        at[k].instr = (int32_t)k;
        for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
            at[k].by_class[c] += k ? at[k - 1].by_class[c] : 0;
            at[k].total += at[k].by_class[c];
        }
    }
}

/* The columns an instruction is in: [first, last]. clock NULL: the order is the clock. */
struct column_range {
    int first, last;
};

static struct column_range columns_of(const struct timeline *t, size_t k, size_t n,
                                      const double *clock)
{
    struct column_range x;
    if (clock && clock[n] > 0) {
        double scale = t->n_columns / clock[n];
        x.first = (int)(clock[k] * scale);
        x.last = (int)ceil(clock[k + 1] * scale) - 1;
    } else {
        x.first = x.last = (int)(k * (size_t)t->n_columns / n);
    }
    x.first = MIN(x.first, t->n_columns - 1);
    x.last = MIN(MAX(x.last, x.first), t->n_columns - 1);
    return x;
}

static void gather(struct timeline *t, const struct timeline_column *at, size_t n,
                   const double *clock)
{
    for (size_t k = 0; k < n; k++) {
        struct column_range x = columns_of(t, k, n, clock);
        for (int c = x.first; c <= x.last; c++) {
            if (at[k].total > t->columns[c].total)
                t->columns[c] = at[k];
        }
        if (k == 0 || at[k].total > t->peak.total) {
            t->peak = at[k];
            t->peak_column = (x.first + x.last) / 2;
        }
    }
}

/* The compute instruction an instant belongs to: the one there, or the next one after a copy. */
static const struct instr *compute_near(const struct program *p, int32_t at)
{
    for (size_t k = (size_t)at; k < p->instrs.n; k++) {
        if (p->instrs.items[k].kind == INSTR_COMPUTE)
            return &p->instrs.items[k];
    }
    for (int32_t k = at; k-- > 0;) {
        if (p->instrs.items[k].kind == INSTR_COMPUTE)
            return &p->instrs.items[k];
    }
    return NULL;
}

/* An update scheduled into the backward pass belongs to it, as reports see it. */
static const char *part_name(const struct instr *i, const struct node *n)
{
    return i->recompute ? "recompute" : pass_name(n->pass);
}

static const char *place_name(struct timeline *t, const struct program *p, int32_t at)
{
    const struct instr *i = compute_near(p, at);
    if (!i)
        return pool_strdup(&t->pool, "copies");
    const struct node *n = graph_node(p->graph, i->node);
    const char *op = op_get(n->op)->name;
    if (n->block == BLOCK_NONE)
        return pool_printf(&t->pool, "%s, %s", part_name(i, n), op);
    return pool_printf(&t->pool, "%s of block %d, %s", part_name(i, n), n->block, op);
}

static enum status add_mark(struct timeline *t, const struct timeline_view *v, const char *name,
                            int32_t at)
{
    t->marks[t->n_marks].name = pool_strdup(&t->pool, name);
    t->marks[t->n_marks++].column =
        columns_of(t, (size_t)at, MAX(v->program->instrs.n, (size_t)1), v->clock).first;
    return pool_status(&t->pool);
}

static bool runs_forward(const struct program *p, const struct section *s)
{
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind == INSTR_COMPUTE && graph_node(p->graph, i->node)->pass == PASS_FORWARD)
            return true;
    }
    return false;
}

/* A section, and where its backward pass begins. */
static enum status mark_section(struct timeline *t, const struct timeline_view *v,
                                const struct section *s)
{
    const struct program *p = v->program;
    const bool forward = runs_forward(p, s);
    int pass = -1;
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COMPUTE || i->recompute)
            continue;
        int here = (int)graph_node(p->graph, i->node)->pass;
        if (here == PASS_UPDATE && forward)
            here = PASS_FORWARD; /* of the step before, in this one's forward pass */
        if (pass >= 0 && !(here == PASS_BACKWARD && pass == PASS_FORWARD))
            continue;
        TRY(add_mark(t, v, pass_name((enum pass)here), pass < 0 ? s->first : k));
        pass = here;
    }
    return OK;
}

/* Sections that steps do not run have one mark for all that stand together. */
static enum status find_marks(struct timeline *t, const struct timeline_view *v)
{
    const struct program *p = v->program;
    const char *before = NULL;
    TRY(pool_try(&t->pool, &t->marks, sizeof(*t->marks) * (2 * p->sections.n + 1)));
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *s = &p->sections.items[x];
        const char *occasion = v->n_micro > 0 ? section_occasion(p, s, v->n_micro) : NULL;
        if (!occasion)
            TRY(mark_section(t, v, s));
        else if (!before || strcmp(before, occasion) != 0)
            TRY(add_mark(t, v, occasion, s->first));
        before = occasion;
    }
    return OK;
}

enum status timeline_init(struct timeline *t, const struct timeline_view *v)
{
    const struct program *p = v->program;
    size_t n = MAX(p->instrs.n, (size_t)1);
    struct timeline_column *at = NULL;
    enum status status;
    *t = (struct timeline){.tier = v->tier, .arena_bytes = p->n_bytes[v->tier]};
    pool_init(&t->pool);
    t->n_columns = v->clock ? MAX(v->n_columns, 1) : (int)MIN((size_t)MAX(v->n_columns, 1), n);
    t->program = pool_strdup(&t->pool, p->name);
    TRY_GOTO(pool_status(&t->pool), out);
    TRY_GOTO(pool_try(&t->pool, &t->columns, sizeof(*t->columns) * (size_t)t->n_columns), out);
    TRY_GOTO(mem_try_array(&at, n, sizeof(*at)), out);
    sweep(p, v->storage, v->tier, at);
    gather(t, at, n, p->instrs.n > 0 ? v->clock : NULL);
    t->peak_place = place_name(t, p, t->peak.instr);
    TRY_GOTO(pool_status(&t->pool), out);
    TRY_GOTO(find_marks(t, v), out);
out:
    mem_free(at);
    if (status != OK)
        timeline_release(t);
    return status;
}

void timeline_release(struct timeline *t)
{
    pool_release(&t->pool);
    *t = (struct timeline){0};
}
