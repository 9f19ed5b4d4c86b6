/* overlap.c: fetches run ahead of compute.
 *
 * Emission puts a fetch right before its first reader:
 *
 *     compute: record a    in: wait a [wait b] copy, record c    compute: wait c, reader
 *
 * Here everything up to `record c` moves towards the front of its section, as far as b (the copy
 * that put the bytes where they are fetched from) and `ahead_bytes` allow: so many bytes may be on
 * their way or waiting for their reader at a time. Fetches keep their order, which is that of their
 * readers. `record a` moves along, so a copy still starts behind every earlier use of the memory it
 * writes to, and the buffer's lifetime starts with the copy: place.c gives it memory of its own
 * from there on, and the check proves the result as it does any program.
 */
#include "program/emit.h"

struct overlap {
    struct emitter *e;
    struct instr *old;  /* the instructions as they were emitted */
    int32_t *moved_to;  /* per old instruction: its index now */
    int32_t *recorded;  /* per event: the old instruction that records it */
    int32_t *starts_at; /* per fetch: the old instruction it now stands before */
};

static enum status overlap_init(struct overlap *x, struct emitter *e)
{
    size_t n = MAX(e->p->instrs.n, (size_t)1);
    *x = (struct overlap){.e = e};
    TRY(mem_try_array(&x->old, n, sizeof(*x->old)));
    TRY(mem_try_array(&x->moved_to, n, sizeof(*x->moved_to)));
    TRY(mem_try_array(&x->recorded, (size_t)MAX(e->p->n_events, 1), sizeof(*x->recorded)));
    TRY(mem_try_array(&x->starts_at, MAX(e->fetches.n, (size_t)1), sizeof(*x->starts_at)));
    for (int32_t k = 0; (size_t)k < e->p->instrs.n; k++) {
        x->old[k] = e->p->instrs.items[k];
        if (x->old[k].kind == INSTR_RECORD)
            x->recorded[x->old[k].event] = k;
    }
    return OK;
}

static void overlap_release(struct overlap *x)
{
    mem_free(x->old);
    mem_free(x->moved_to);
    mem_free(x->recorded);
    mem_free(x->starts_at);
}

static bool starts_section(const struct fetch *f, const struct fetch *before,
                           const struct program *p)
{
    for (size_t s = 0; s < p->sections.n; s++) {
        int32_t first = p->sections.items[s].first;
        if (f->first >= first && (!before || before->first < first))
            return true;
    }
    return false;
}

static int32_t section_of(const struct program *p, int32_t at)
{
    int32_t first = 0;
    for (size_t s = 0; s < p->sections.n && p->sections.items[s].first <= at; s++)
        first = p->sections.items[s].first;
    return first;
}

/* Walks the fetches in the order of their readers; those from `oldest` on are ahead of theirs. */
static void choose_starts(struct overlap *x)
{
    const struct emitter *e = x->e;
    const struct fetch *f = e->fetches.items;
    int64_t room = e->plan->ahead_bytes, ahead = 0;
    size_t oldest = 0;
    int32_t start = 0;
    for (size_t i = 0; i < e->fetches.n; i++) {
        if (starts_section(&f[i], i ? &f[i - 1] : NULL, e->p)) {
            start = section_of(e->p, f[i].first);
            oldest = i;
            ahead = 0;
        }
        if (f[i].after >= 0)
            start = MAX(start, x->recorded[f[i].after] + 1);
        while (oldest < i && (f[oldest].first <= start || ahead + f[i].n_bytes > room)) {
            start = MAX(start, f[oldest].first);
            ahead -= f[oldest++].n_bytes;
        }
        if (f[i].n_bytes > room)
            start = f[i].first;
        x->starts_at[i] = start;
        ahead += f[i].n_bytes;
    }
}

static void put(struct overlap *x, int32_t from, int32_t n, int32_t *end)
{
    for (int32_t k = from; k < from + n; k++) {
        x->moved_to[k] = *end;
        x->e->p->instrs.items[(*end)++] = x->old[k];
    }
}

/* Writes the instructions again, each fetch where it starts. */
static void reorder(struct overlap *x)
{
    const struct emitter *e = x->e;
    const struct fetch *f = e->fetches.items;
    size_t next = 0, skipped = 0;
    int32_t end = 0, n_instrs = (int32_t)e->p->instrs.n;
    for (int32_t k = 0; k < n_instrs; k++) {
        for (; next < e->fetches.n && x->starts_at[next] <= k; next++)
            put(x, f[next].first, f[next].n, &end);
        if (skipped < e->fetches.n && f[skipped].first == k)
            k += f[skipped++].n - 1;
        else
            put(x, k, 1, &end);
    }
}

/* Where a fetch comes from stays as it is until compute knows that the copy is done: what takes the
 * memory next is ordered by compute. */
static void keep_source(const struct overlap *x, const struct fetch *f)
{
    struct program *p = x->e->p;
    for (int32_t k = f->first; k < f->first + f->n; k++) {
        const struct instr *i = &x->old[k];
        if (i->kind != INSTR_COPY)
            continue;
        struct buffer *source = &p->buffers.items[p->operands.items[i->first_operand].buffer];
        source->last = MAX(source->last, x->moved_to[f->first + f->n]);
    }
}

static void move_lifetimes(const struct overlap *x)
{
    struct program *p = x->e->p;
    for (size_t i = 0; i < p->buffers.n; i++) {
        struct buffer *b = &p->buffers.items[i];
        if (b->last < b->first)
            continue; /* nothing touches it */
        b->first = x->moved_to[b->first];
        b->last = x->moved_to[b->last];
    }
    for (size_t i = 0; i < x->e->fetches.n; i++)
        keep_source(x, &x->e->fetches.items[i]);
}

enum status overlap_fetches(struct emitter *e)
{
    struct overlap x;
    if (e->plan->ahead_bytes <= 0 || e->fetches.n == 0)
        return OK;
    enum status status = overlap_init(&x, e);
    if (status == OK) {
        choose_starts(&x);
        reorder(&x);
        move_lifetimes(&x);
    }
    overlap_release(&x);
    return status;
}
