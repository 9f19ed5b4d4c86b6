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
 *
 * What is read from disk to a place halfway moves likewise, ahead of the fetch that takes it on: as
 * far as `halfway_bytes` allow, which are there until the fetch's reader has them, and further
 * while the host is not full (slack.c). Likewise compute waits later for what is written from
 * halfway.
 */
#include "program/emit.h"

struct overlap {
    struct emitter *e;
    struct instr *old;  /* the instructions as they were emitted */
    int32_t *moved_to;  /* per old instruction: its index now */
    int32_t *recorded;  /* per event: the old instruction that records it */
    int32_t *starts_at; /* per fetch: the old instruction it now stands before */
    int32_t *read_at;   /* per read, likewise */
    int32_t *waits_at;  /* per wait, likewise */
};

static enum status overlap_init(struct overlap *x, struct emitter *e)
{
    const size_t n = MAX(e->p->instrs.n, (size_t)1);
    *x = (struct overlap){.e = e};
    TRY(mem_try_array(&x->moved_to, n, sizeof(*x->moved_to)));
    TRY(mem_try_array(&x->recorded, (size_t)MAX(e->p->n_events, 1), sizeof(*x->recorded)));
    TRY(mem_try_array(&x->starts_at, MAX(e->fetches.n, (size_t)1), sizeof(*x->starts_at)));
    TRY(mem_try_array(&x->read_at, MAX(e->reads.n, (size_t)1), sizeof(*x->read_at)));
    TRY(mem_try_array(&x->waits_at, MAX(e->waits.n, (size_t)1), sizeof(*x->waits_at)));
    for (int32_t k = 0; (size_t)k < e->p->instrs.n; k++) {
        const struct instr *i = &e->p->instrs.items[k];
        if (i->kind == INSTR_RECORD)
            x->recorded[i->event] = k;
    }
    return OK;
}

static void overlap_release(struct overlap *x)
{
    mem_free(x->old);
    mem_free(x->moved_to);
    mem_free(x->recorded);
    mem_free(x->starts_at);
    mem_free(x->read_at);
    mem_free(x->waits_at);
}

static bool starts_section(const struct movable *f, const struct movable *before,
                           const struct program *p)
{
    for (size_t s = 0; s < p->sections.n; s++) {
        int32_t first = p->sections.items[s].first;
        if (f->first >= first && (!before || before->first < first))
            return true;
    }
    return false;
}

/* Walks fetches, or reads, in the order of their readers; those from `oldest` on are ahead of
 * theirs. */
static void choose_starts(const struct overlap *x, const struct movable *f, size_t n, int64_t room,
                          int32_t *starts_at)
{
    const struct program *p = x->e->p;
    int64_t ahead = 0;
    size_t oldest = 0;
    int32_t start = 0;
    for (size_t i = 0; i < n; i++) {
        if (starts_section(&f[i], i ? &f[i - 1] : NULL, p)) {
            start = section_at(p, f[i].first)->first;
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
        starts_at[i] = start;
        ahead += f[i].n_bytes;
    }
}

/* A read is no later than what takes it on, and that no earlier than the read can be. */
static void put_reads_first(const struct overlap *x)
{
    const struct movable *r = x->e->reads.items;
    for (size_t i = 0; i < x->e->reads.n; i++) {
        int32_t *onward = &x->starts_at[r[i].onward];
        if (r[i].after >= 0)
            *onward = MAX(*onward, x->recorded[r[i].after] + 1);
    }
    for (size_t i = 1; i < x->e->fetches.n; i++) /* they keep their order */
        x->starts_at[i] = MAX(x->starts_at[i], x->starts_at[i - 1]);
    for (size_t i = 0; i < x->e->reads.n; i++)
        x->read_at[i] = MIN(x->read_at[i], x->starts_at[r[i].onward]);
}

static void put(struct overlap *x, int32_t from, int32_t n, int32_t *end)
{
    for (int32_t k = from; k < from + n; k++) {
        x->moved_to[k] = *end;
        x->e->p->instrs.items[(*end)++] = x->old[k];
    }
}

/* Instructions of one kind that are still to be put and to be left out. */
struct moving {
    const struct movable *m;
    const int32_t *starts_at;
    size_t n, next, skipped;
};

static void put_due(struct overlap *x, struct moving *v, int32_t k, int32_t *end)
{
    for (; v->next < v->n && v->starts_at[v->next] <= k; v->next++)
        put(x, v->m[v->next].first, v->m[v->next].n, end);
}

/* Instructions at k that have been put, or will be. */
static int32_t skip(struct moving *v, int32_t k)
{
    return v->skipped < v->n && v->m[v->skipped].first == k ? v->m[v->skipped++].n : 0;
}

/* The program gets as many that are still to be written. */
static enum status take_old(struct overlap *x)
{
    struct program *p = x->e->p;
    struct instr *items = mem_alloc(p->instrs.capacity * sizeof(*items));
    if (!items)
        return FAIL(ERR_MEMORY, "could not allocate %zu instructions", p->instrs.capacity);
    x->old = p->instrs.items;
    p->instrs.items = items;
    return OK;
}

/* Writes the instructions again, each fetch where it starts, and each read before its fetch; behind
 * the waits that give them memory. */
static void reorder(struct overlap *x)
{
    const struct emitter *e = x->e;
    struct moving kinds[] = {
        {.m = e->waits.items, .starts_at = x->waits_at, .n = e->waits.n},
        {.m = e->reads.items, .starts_at = x->read_at, .n = e->reads.n},
        {.m = e->fetches.items, .starts_at = x->starts_at, .n = e->fetches.n},
    };
    int32_t end = 0, n_instrs = (int32_t)e->p->instrs.n;
    for (int32_t k = 0; k < n_instrs;) {
        int32_t n = 0;
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
            put_due(x, &kinds[i], k, &end);
        for (size_t i = 0; i < ARRAY_LEN(kinds) && n == 0; i++)
            n = skip(&kinds[i], k);
        if (n == 0)
            put(x, k, 1, &end);
        k += MAX(n, 1);
    }
}

/* Where a fetch comes from stays as it is until compute knows that the copy is done: what takes the
 * memory next is ordered by compute. (The disk's is taken by the disk's own queue.) */
static void keep_source(const struct overlap *x, const struct movable *f)
{
    struct program *p = x->e->p;
    for (int32_t k = f->first; k < f->first + f->n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind != INSTR_COPY)
            continue;
        struct buffer *source = &p->buffers.items[p->operands.items[i->first_operand].buffer];
        source->last = MAX(source->last, f->first + f->n);
    }
}

static void move_lifetimes(const struct overlap *x)
{
    struct program *p = x->e->p;
    for (size_t i = 0; i < p->buffers.n; i++) {
        struct buffer *b = &p->buffers.items[i];
        bool is_always = b->first == 0 && (size_t)b->last + 1 == p->instrs.n;
        if (b->last < b->first || is_always)
            continue; /* nothing touches it, or it is there whatever moves */
        b->first = x->moved_to[b->first];
        b->last = x->moved_to[b->last];
    }
}

static enum status move_all(struct overlap *x)
{
    const struct emitter *e = x->e;
    choose_starts(x, e->fetches.items, e->fetches.n, e->plan->ahead_bytes, x->starts_at);
    choose_starts(x, e->reads.items, e->reads.n, e->plan->halfway_bytes, x->read_at);
    put_reads_first(x);
    for (size_t i = 0; i < e->fetches.n; i++)
        keep_source(x, &e->fetches.items[i]);
    TRY(slack_use(e, x->recorded, x->read_at, x->waits_at));
    TRY(take_old(x));
    reorder(x);
    move_lifetimes(x);
    return OK;
}

enum status overlap_fetches(struct emitter *e)
{
    struct overlap x;
    bool may_move = e->plan->ahead_bytes > 0 || e->reads.n > 0;
    if (!may_move || e->fetches.n == 0)
        return OK;
    enum status status = overlap_init(&x, e);
    if (status == OK)
        status = move_all(&x);
    overlap_release(&x);
    return status;
}
