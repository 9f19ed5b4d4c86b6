#include "data/packs.h"

#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"

enum { BITS = 64 };

/* Packs while they are filled, as lists by the room left in them; -1 ends a list. */
struct filling {
    int64_t room, n_packs;
    int64_t *first;  /* [room + 1]: of packs with so much room */
    int64_t *next;   /* [n]: of a pack, in its list */
    uint64_t *any;   /* a bit for each room: is there a pack with it? */
    int64_t *order;  /* [n]: samples, the longest first */
    int64_t *counts; /* [room + 2] */
    int64_t *pack;   /* [n]: of each sample */
};

static void filling_release(struct filling *f)
{
    mem_free(f->first);
    mem_free(f->next);
    mem_free(f->any);
    mem_free(f->order);
    mem_free(f->counts);
    mem_free(f->pack);
}

static enum status filling_init(struct filling *f, int64_t n, int64_t room)
{
    *f = (struct filling){.room = room};
    TRY(mem_try_array(&f->first, (size_t)room + 1, sizeof(*f->first)));
    TRY(mem_try_array(&f->next, (size_t)n, sizeof(*f->next)));
    TRY(mem_try_array(&f->any, (size_t)room / BITS + 1, sizeof(*f->any)));
    TRY(mem_try_array(&f->order, (size_t)n, sizeof(*f->order)));
    TRY(mem_try_array(&f->counts, (size_t)room + 2, sizeof(*f->counts)));
    TRY(mem_try_array(&f->pack, (size_t)n, sizeof(*f->pack)));
    for (int64_t i = 0; i <= room; i++)
        f->first[i] = -1;
    return OK;
}

/* By counting; those of one length stay in their order. */
static void sort_by_length(struct filling *f, const int32_t *lengths, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        f->counts[f->room - lengths[i] + 1]++;
    for (int64_t k = 1; k <= f->room + 1; k++)
        f->counts[k] += f->counts[k - 1];
    for (int64_t i = 0; i < n; i++)
        f->order[f->counts[f->room - lengths[i]]++] = i;
}

/* The least room that is left in a pack and holds n; -1: no pack has it. */
static int64_t best_room(const struct filling *f, int64_t n)
{
    uint64_t word = f->any[n / BITS] & ~UINT64_C(0) << n % BITS;
    for (int64_t w = n / BITS;;) {
        if (word)
            return w * BITS + __builtin_ctzll(word);
        if (++w > f->room / BITS)
            return -1;
        word = f->any[w];
    }
}

static int64_t take_pack(struct filling *f, int64_t room)
{
    int64_t pack = f->first[room];
    f->first[room] = f->next[pack];
    if (f->first[room] < 0)
        f->any[room / BITS] &= ~(UINT64_C(1) << room % BITS);
    return pack;
}

static void put_pack(struct filling *f, int64_t pack, int64_t room)
{
    f->next[pack] = f->first[room];
    f->first[room] = pack;
    f->any[room / BITS] |= UINT64_C(1) << room % BITS;
}

static void fill(struct filling *f, const int32_t *lengths, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t i = f->order[k], room = best_room(f, lengths[i]);
        f->pack[i] = room < 0 ? f->n_packs++ : take_pack(f, room);
        put_pack(f, f->pack[i], (room < 0 ? f->room : room) - lengths[i]);
    }
}

/* Packs by their first members, and members in order. `next` is a pack's new number now. */
static enum status write_out(struct packs *out, struct filling *f, int64_t n)
{
    TRY(mem_try_array(&out->begin, (size_t)f->n_packs + 1, sizeof(*out->begin)));
    TRY(mem_try_array(&out->members, (size_t)n, sizeof(*out->members)));
    memset(f->next, 0xff, (size_t)n * sizeof(*f->next));
    for (int64_t i = 0; i < n; i++) {
        int64_t *number = &f->next[f->pack[i]];
        if (*number < 0)
            *number = out->n++;
        f->pack[i] = *number;
        out->begin[*number + 1]++;
    }
    for (int64_t k = 0; k < out->n; k++)
        out->begin[k + 1] += out->begin[k];
    memcpy(f->order, out->begin, (size_t)out->n * sizeof(*f->order)); /* where each goes on */
    for (int64_t i = 0; i < n; i++)
        out->members[f->order[f->pack[i]]++] = i;
    return OK;
}

enum status packs_make(struct packs *out, const int32_t *lengths, int64_t n, int64_t room)
{
    struct filling f = {0};
    enum status status;
    *out = (struct packs){0};
    TRY_GOTO(filling_init(&f, n, room), out);
    sort_by_length(&f, lengths, n);
    fill(&f, lengths, n);
    status = write_out(out, &f, n);
out:
    filling_release(&f);
    if (status != OK)
        packs_release(out);
    return status;
}

void packs_release(struct packs *p)
{
    mem_free(p->begin);
    mem_free(p->members);
    *p = (struct packs){0};
}
