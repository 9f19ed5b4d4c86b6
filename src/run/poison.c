#include "run/poison.h"

#include <string.h>

#include "base/compiler.h"

#if SNUG_ASAN
#include <sanitizer/asan_interface.h>
#define FORBID(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define PERMIT(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define FORBID(p, n) ((void)(p), (void)(n))
#define PERMIT(p, n) ((void)(p), (void)(n))
#endif

#if SNUG_ASAN || !defined(NDEBUG)
#define ENABLED true
#else
#define ENABLED false
#endif

enum { DEAD = 0xA5 };

static bool has_addresses(enum tier t)
{
    return t != TIER_DISK;
}

/* Lives for part of the program only; ports, storage and carried values are never filled. */
static bool is_transient(const struct program *p, const struct buffer *b)
{
    bool whole = b->first == 0 && (size_t)b->last + 1 >= p->instrs.n;
    return has_addresses(b->tier) && b->storage < 0 && !b->carried && b->merged_into < 0 && !whole;
}

/* Buckets of buffers by first or last instruction. */
static enum status bucket(const struct program *p, bool births, struct pool *pool, int32_t **at,
                          int32_t **ids)
{
    size_t n = p->instrs.n + 2;
    int32_t total = 0;
    TRY(pool_try(pool, at, n * sizeof(**at)));
    TRY(pool_try(pool, ids, MAX(p->buffers.n, (size_t)1) * sizeof(**ids)));
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (is_transient(p, b))
            (*at)[(births ? b->first : b->last) + 1]++;
    }
    for (size_t k = 0; k < n; k++) {
        total += (*at)[k];
        (*at)[k] = total;
    }
    /* (*at)[k + 1] is the end of bucket k: fill from there down. */
    for (size_t i = p->buffers.n; i-- > 0;) {
        const struct buffer *b = &p->buffers.items[i];
        if (is_transient(p, b))
            (*ids)[--(*at)[(births ? b->first : b->last) + 1]] = (int32_t)i;
    }
    /* Now (*at)[k + 1] is the beginning of bucket k: shift to (*at)[k]. */
    memmove(*at, *at + 1, (n - 1) * sizeof(**at));
    (*at)[n - 1] = total;
    return OK;
}

enum status poison_init(struct poison *x, const struct program *p, const struct storage *storage,
                        const struct memory *arenas, bool addressable, struct pool *pool)
{
    *x = (struct poison){.p = p, .storage = storage, .arenas = arenas};
    if (!ENABLED || !addressable)
        return OK;
    TRY(bucket(p, true, pool, &x->born_at, &x->born));
    return bucket(p, false, pool, &x->dead_at, &x->dead);
}

static char *address(const struct poison *x, const struct buffer *b)
{
    return (char *)x->arenas[b->tier].base + b->offset;
}

static void forbid_transients(const struct poison *x)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t first = x->p->n_storage[t];
        if (x->p->n_bytes[t] > first && has_addresses((enum tier)t))
            FORBID((char *)x->arenas[t].base + first, (size_t)(x->p->n_bytes[t] - first));
    }
}

/* The bytes between the end of an entry and the next aligned offset. */
static void forbid_padding(const struct poison *x)
{
    for (size_t i = 0; i < x->storage->entries.n; i++) {
        const struct storage_entry *e = &x->storage->entries.items[i];
        int64_t n_padding = align_up(e->n_bytes, ARENA_ALIGN) - e->n_bytes;
        if (n_padding > 0 && has_addresses(e->tier))
            FORBID((char *)x->arenas[e->tier].base + e->offset + e->n_bytes, (size_t)n_padding);
    }
}

void poison_enter(const struct poison *x)
{
    if (!x->born_at)
        return;
    forbid_transients(x);
    forbid_padding(x);
    for (size_t i = 0; i < x->p->buffers.n; i++) {
        const struct buffer *b = &x->p->buffers.items[i];
        if (has_addresses(b->tier) && b->storage < 0 && b->merged_into < 0 && b->n_bytes > 0 &&
            !is_transient(x->p, b))
            PERMIT(address(x, b), (size_t)b->n_bytes);
    }
}

void poison_before(const struct poison *x, int32_t at)
{
    for (int32_t k = x->born_at ? x->born_at[at] : 0; x->born_at && k < x->born_at[at + 1]; k++) {
        const struct buffer *b = &x->p->buffers.items[x->born[k]];
        if (b->n_bytes > 0)
            PERMIT(address(x, b), (size_t)b->n_bytes);
    }
}

void poison_after(const struct poison *x, int32_t at)
{
    for (int32_t k = x->dead_at ? x->dead_at[at] : 0; x->dead_at && k < x->dead_at[at + 1]; k++) {
        const struct buffer *b = &x->p->buffers.items[x->dead[k]];
        if (b->n_bytes == 0)
            continue;
        memset(address(x, b), DEAD, (size_t)b->n_bytes);
        FORBID(address(x, b), (size_t)b->n_bytes);
    }
}

void poison_leave(const struct poison *x)
{
    for (int t = 0; x->born_at && t < TIER_COUNT; t++) {
        if (x->p->n_bytes[t] > 0 && has_addresses((enum tier)t))
            PERMIT(x->arenas[t].base, (size_t)x->p->n_bytes[t]);
    }
}
