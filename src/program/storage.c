/* storage.c: the part of each arena that outlives a step. Entries are laid end to end in the order
 * they are asked for, so programs that share a model share its addresses. */
#include <string.h>

#include "program/program.h"

void storage_init(struct storage *s)
{
    *s = (struct storage){0};
    pool_init(&s->pool);
}

void storage_release(struct storage *s)
{
    vec_release(&s->entries);
    pool_release(&s->pool);
}

/* Of a word at a time: a search asks for thousands of names with each of its programs. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0;
    for (size_t n = strlen(name), part; n > 0; n -= part, name += part) {
        uint64_t word = 0;
        part = MIN(n, sizeof(word));
        memcpy(&word, name, part);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

static int32_t find(const struct storage *s, const char *name, uint64_t hash)
{
    for (size_t at = (size_t)hash; s->n_slots > 0; at++) {
        int32_t i = s->slots[at & (s->n_slots - 1)];
        if (i < 0)
            return -1;
        if (s->entries.items[i].hash == hash && strcmp(s->entries.items[i].name, name) == 0)
            return i;
    }
    return -1;
}

static void take_slot(struct storage *s, int32_t i)
{
    size_t at = (size_t)s->entries.items[i].hash;
    while (s->slots[at & (s->n_slots - 1)] >= 0)
        at++;
    s->slots[at & (s->n_slots - 1)] = i;
}

/* The last entry gets a slot; half of them stay free. */
static enum status index_last(struct storage *s)
{
    if (2 * s->entries.n <= s->n_slots) {
        take_slot(s, (int32_t)s->entries.n - 1);
        return OK;
    }
    s->n_slots = MAX(2 * s->n_slots, (size_t)64);
    TRY(pool_try(&s->pool, &s->slots, s->n_slots * sizeof(*s->slots)));
    for (size_t i = 0; i < s->n_slots; i++)
        s->slots[i] = -1;
    for (size_t i = 0; i < s->entries.n; i++)
        take_slot(s, (int32_t)i);
    return OK;
}

enum status storage_need(struct storage *s, const char *name, enum memory_class kind,
                         enum tier tier, int64_t n_bytes, int32_t *index)
{
    const uint64_t hash = hash_name(name);
    *index = find(s, name, hash);
    if (*index >= 0) {
        const struct storage_entry *e = &s->entries.items[*index];
        if (e->n_bytes != n_bytes || e->tier != tier)
            return FAIL(ERR_INTERNAL, "storage '%s' is asked for with %lld bytes, and with %lld",
                        name, (long long)e->n_bytes, (long long)n_bytes);
        return OK;
    }
    struct storage_entry e = {.name = pool_strdup(&s->pool, name),
                              .hash = hash,
                              .kind = kind,
                              .tier = tier,
                              .n_bytes = n_bytes,
                              .offset = s->n_bytes[tier]};
    TRY(pool_status(&s->pool));
    TRY(vec_push(&s->entries, e));
    s->n_bytes[tier] += align_up(n_bytes, tier_align(tier));
    *index = (int32_t)s->entries.n - 1;
    return index_last(s);
}

enum status program_need_storage(struct program *p, struct storage *storage)
{
    for (size_t i = 0; i < p->buffers.n; i++) {
        struct buffer *b = &p->buffers.items[i];
        if (b->storage >= 0)
            TRY(storage_need(storage, b->name, b->kind, b->tier, b->n_bytes, &b->storage));
    }
    return OK;
}

const struct storage_entry *storage_find(const struct storage *s, const char *name)
{
    int32_t i = find(s, name, hash_name(name));
    return i < 0 ? NULL : &s->entries.items[i];
}
