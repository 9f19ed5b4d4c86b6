/* repair.c: ejection chains, a search over layouts instead of over orders.
 *
 * A greedy order that misses the bound misses it by a few buffers: everything else is in a good
 * place. So nothing is placed again but those. A buffer that has no gap below the capacity takes
 * the place where it pushes out least, and what was pushed out waits for its turn to be put
 * somewhere else:
 *
 *      over the capacity ┌──────┐
 *      ─ ─ ─ ─ ─ ─ ─ ─ ─ │  A   │ ─ ─         A takes the place of B and C, which are cheap;
 *      ┌──────────┐      └──────┘             B finds a gap, C pushes out something cheaper still
 *      │ kept     │  ┌───┐ ┌──┐
 *      │          │  │ B │ │C │
 *      └──────────┘  └───┘ └──┘
 *
 * Pushing out costs a buffer's bytes times its lifetime, and the dearest waits least: a chain goes
 * from what is hard to place to what is easy. Each time a buffer finds no gap it becomes dearer,
 * which breaks circles (after guided ejection search; Nagata and Braysy, "A powerful route
 * minimization heuristic for the vehicle routing problem with time windows", 2009). A step is one
 * scan of the placed buffers; a greedy trial is n.
 *
 * Costs are whole numbers and nothing is drawn at random: the same input gives the same layout.
 */
#include "plan/repair.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sanitizer.h"

enum { COST_BITS = 20 }; /* costs count bytes in units of capacity / 2^20 */

#define MAX_COST ((int64_t)1 << 44) /* for one buffer: sums stay far from overflow */

/* A placed item that is alive together with the one to be placed. */
struct neighbour {
    int64_t offset, end;
    int32_t index; /* of the item */
    int32_t slot;
};

/* The cost of a neighbour, where it begins or ends. */
struct edge {
    int64_t at, cost;
};

struct repair {
    struct layout_item *items;
    size_t n;
    int64_t capacity;
    /* Placed items by offset, what is asked of all of them for every step side by side. */
    int32_t *slots, *slot_first, *slot_last;
    uint8_t *is_near; /* per slot */
    size_t n_slots;
    struct neighbour *near; /* those alive together with the item to be placed, by offset */
    size_t n_near;
    struct edge *begins, *ends, *merged; /* of near, by address */
    int32_t *waiting;                    /* items without a place */
    size_t n_waiting;
    int64_t *cost; /* of pushing out an item */
    int64_t work;  /* left */
};

static int32_t take_dearest(struct repair *r)
{
    size_t dearest = 0;
    for (size_t k = 1; k < r->n_waiting; k++) {
        int64_t more = r->cost[r->waiting[k]] - r->cost[r->waiting[dearest]];
        if (more > 0 || (more == 0 && r->waiting[k] < r->waiting[dearest]))
            dearest = k;
    }
    r->work -= (int64_t)r->n_waiting;
    int32_t i = r->waiting[dearest];
    r->waiting[dearest] = r->waiting[--r->n_waiting];
    return i;
}

static void copy_slots(struct repair *r, size_t to, size_t from, size_t n)
{
    memmove(r->slots + to, r->slots + from, n * sizeof(*r->slots));
    memmove(r->slot_first + to, r->slot_first + from, n * sizeof(*r->slot_first));
    memmove(r->slot_last + to, r->slot_last + from, n * sizeof(*r->slot_last));
}

static void set_slot(struct repair *r, size_t k, int32_t i)
{
    r->slots[k] = i;
    r->slot_first[k] = r->items[i].first;
    r->slot_last[k] = r->items[i].last;
}

static void put(struct repair *r, int32_t i, int64_t at)
{
    size_t low = 0, high = r->n_slots;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->items[r->slots[middle]].offset <= at)
            low = middle + 1;
        else
            high = middle;
    }
    copy_slots(r, low + 1, low, r->n_slots - low);
    set_slot(r, low, i);
    r->n_slots++;
    r->items[i].offset = at;
}

/* The slots of what is alive together with x, one comparison like the other: the compiler makes
 * many of them at once. */
static UNSANITIZED void mark_near(struct repair *r, const struct layout_item *x)
{
    const int32_t first = x->first, last = x->last;
    const int32_t *restrict firsts = r->slot_first, *restrict lasts = r->slot_last;
    uint8_t *restrict is_near = r->is_near;
    const size_t n = r->n_slots;
    sanitizer_expect(firsts, n * sizeof(*firsts));
    sanitizer_expect(lasts, n * sizeof(*lasts));
    sanitizer_expect(is_near, n);
    for (size_t k = 0; k < n; k++)
        is_near[k] = (uint8_t)(firsts[k] <= last) & (uint8_t)(lasts[k] >= first);
    memset(is_near + n, 0, sizeof(uint64_t)); /* what gather_near reads at once */
}

static void gather_near(struct repair *r, const struct layout_item *x)
{
    size_t n_near = 0;
    mark_near(r, x);
    for (size_t word = 0; word < r->n_slots; word += sizeof(uint64_t)) {
        uint64_t any;
        memcpy(&any, r->is_near + word, sizeof(any));
        for (size_t k = word; any && k < word + sizeof(any); k++) {
            if (!r->is_near[k])
                continue;
            const struct layout_item *other = &r->items[r->slots[k]];
            r->near[n_near++] = (struct neighbour){other->offset, other->offset + other->n_bytes,
                                                   r->slots[k], (int32_t)k};
        }
    }
    r->n_near = n_near;
    r->work -= (int64_t)r->n_slots;
}

/* The tightest gap between the neighbours in time, below the capacity; or -1. */
static int64_t find_gap(const struct repair *r, const struct layout_item *x)
{
    int64_t at = 0, best = -1, tightest = INT64_MAX, size = x->n_bytes;
    for (size_t k = 0; k < r->n_near; k++) {
        int64_t gap = r->near[k].offset - at;
        if (gap >= size && gap < tightest) {
            best = at;
            tightest = gap;
        }
        at = MAX(at, r->near[k].end);
    }
    return r->capacity - at >= size && r->capacity - at < tightest ? at : best;
}

/* Two sorted runs of `from` into one. Which run is next cannot be foreseen: chosen, not branched
 * on. */
static void merge_runs(const struct edge *from, size_t begin, size_t middle, size_t end,
                       struct edge *to)
{
    size_t a = begin, b = middle;
    to += begin;
    while (a < middle && b < end) {
        bool is_first = from[a].at <= from[b].at;
        *to++ = from[is_first ? a : b];
        a += is_first;
        b += !is_first;
    }
    memcpy(to, from + a, (middle - a) * sizeof(*to));
    memcpy(to + (middle - a), from + b, (end - b) * sizeof(*to));
}

/* By address. */
static void sort_edges(struct edge *edges, size_t n, struct edge *room)
{
    struct edge *from = edges, *to = room;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t k = 0; k < n; k += 2 * run)
            merge_runs(from, k, MIN(k + run, n), MIN(k + 2 * run, n), to);
        struct edge *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != edges)
        memcpy(edges, from, n * sizeof(*edges));
}

/* Where x pushes out least. What a place costs is what begins below its end less what ends below
 * its start; only places on top of a neighbour or right under one need be looked at. */
static int64_t cheapest_place(struct repair *r, const struct layout_item *x)
{
    size_t n = r->n_near, n_begun = 0, n_ended = 0;
    int64_t best = 0, least = INT64_MAX, begun = 0, ended = 0;
    for (size_t k = 0; k < n; k++) {
        int64_t cost = r->cost[r->near[k].index];
        r->begins[k] = (struct edge){r->near[k].offset, cost};
        r->ends[k + 1] = (struct edge){r->near[k].end, cost};
    }
    r->begins[n] = (struct edge){r->capacity, 0};
    r->ends[0] = (struct edge){0, 0};
    sort_edges(r->ends + 1, n, r->merged);
    for (size_t k = 0; k <= n && r->ends[k].at + x->n_bytes <= r->capacity; k++) {
        ended += r->ends[k].cost;
        for (; n_begun < n && r->begins[n_begun].at < r->ends[k].at + x->n_bytes; n_begun++)
            begun += r->begins[n_begun].cost;
        if (begun - ended < least) {
            least = begun - ended;
            best = r->ends[k].at;
        }
    }
    begun = ended = 0;
    for (size_t k = 0; k <= n; begun += r->begins[k++].cost) {
        int64_t at = r->begins[k].at - x->n_bytes;
        if (at < 0)
            continue;
        for (; n_ended <= n && r->ends[n_ended].at <= at; n_ended++)
            ended += r->ends[n_ended].cost;
        if (begun - ended < least) {
            least = begun - ended;
            best = at;
        }
    }
    r->work -= 8 * (int64_t)n;
    return best;
}

/* Everything alive with x in [at, at + size) loses its place. */
static void push_out(struct repair *r, const struct layout_item *x, int64_t at)
{
    size_t n_left = 0, next = 0; /* slots that stay, and that were looked at */
    for (size_t k = 0; k < r->n_near; k++) {
        const struct neighbour *s = &r->near[k];
        if (s->offset >= at + x->n_bytes || at >= s->end)
            continue;
        size_t n = (size_t)s->slot - next;
        if (n_left != next)
            copy_slots(r, n_left, next, n);
        n_left += n;
        next += n + 1;
        r->waiting[r->n_waiting++] = s->index;
    }
    if (n_left != next)
        copy_slots(r, n_left, next, r->n_slots - next);
    r->n_slots -= next - n_left;
    r->work -= (int64_t)r->n;
}

static void step(struct repair *r)
{
    int32_t i = take_dearest(r);
    const struct layout_item *x = &r->items[i];
    gather_near(r, x);
    int64_t at = find_gap(r, x);
    if (at < 0) {
        at = cheapest_place(r, x);
        push_out(r, x, at);
        r->cost[i] = MIN(r->cost[i] + r->cost[i] / 2 + 1, MAX_COST);
    }
    put(r, i, at);
}

struct placed {
    int64_t offset;
    int32_t index;
};

static int by_offset(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    int order = (x->offset > y->offset) - (x->offset < y->offset);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* What lies below the capacity stays; the rest waits. */
static enum status begin(struct repair *r)
{
    int64_t unit = (r->capacity >> COST_BITS) + 1;
    struct placed *placed;
    TRY(mem_try_array(&placed, r->n, sizeof(*placed)));
    for (size_t i = 0; i < r->n; i++) {
        const struct layout_item *x = &r->items[i];
        r->cost[i] = MIN((x->n_bytes / unit + 1) * ((int64_t)x->last - x->first + 1), MAX_COST);
        if (x->offset + x->n_bytes <= r->capacity)
            placed[r->n_slots++] = (struct placed){x->offset, (int32_t)i};
        else
            r->waiting[r->n_waiting++] = (int32_t)i;
    }
    qsort(placed, r->n_slots, sizeof(*placed), by_offset);
    for (size_t k = 0; k < r->n_slots; k++)
        set_slot(r, k, placed[k].index);
    mem_free(placed);
    return OK;
}

enum status layout_repair(struct layout_item *items, size_t n, int64_t capacity, int64_t *work,
                          int64_t *height)
{
    struct repair r = {.items = items, .n = n, .capacity = capacity, .work = *work};
    enum status status;
    TRY_GOTO(mem_try_array(&r.slots, n, sizeof(*r.slots)), out);
    TRY_GOTO(mem_try_array(&r.slot_first, n, sizeof(*r.slot_first)), out);
    TRY_GOTO(mem_try_array(&r.slot_last, n, sizeof(*r.slot_last)), out);
    TRY_GOTO(mem_try_array(&r.is_near, n + sizeof(uint64_t), sizeof(*r.is_near)), out);
    TRY_GOTO(mem_try_array(&r.near, n, sizeof(*r.near)), out);
    TRY_GOTO(mem_try_array(&r.begins, n + 1, sizeof(*r.begins)), out);
    TRY_GOTO(mem_try_array(&r.ends, n + 1, sizeof(*r.ends)), out);
    TRY_GOTO(mem_try_array(&r.merged, n + 1, sizeof(*r.merged)), out);
    TRY_GOTO(mem_try_array(&r.waiting, n, sizeof(*r.waiting)), out);
    TRY_GOTO(mem_try_array(&r.cost, n, sizeof(*r.cost)), out);
    TRY_GOTO(begin(&r), out);
    while (r.n_waiting > 0) {
        if (r.work <= 0)
            r.capacity = INT64_MAX;
        step(&r);
    }
    *work = r.work;
    *height = 0;
    for (size_t i = 0; i < n; i++)
        *height = MAX(*height, items[i].offset + items[i].n_bytes);
out:
    mem_free(r.slots);
    mem_free(r.slot_first);
    mem_free(r.slot_last);
    mem_free(r.is_near);
    mem_free(r.near);
    mem_free(r.begins);
    mem_free(r.ends);
    mem_free(r.merged);
    mem_free(r.waiting);
    mem_free(r.cost);
    return status;
}
