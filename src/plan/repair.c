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

enum { COST_BITS = 20 }; /* costs count bytes in units of capacity / 2^20 */

#define MAX_COST ((int64_t)1 << 44) /* for one buffer: sums stay far from overflow */

struct slot {
    int64_t offset, end;
    int32_t first, last;
    int32_t index; /* of the item */
};

/* The cost of a neighbour, where it begins or ends. */
struct edge {
    int64_t at, cost;
};

struct repair {
    struct layout_item *items;
    size_t n;
    int64_t capacity;
    struct slot *slots; /* placed items, by offset */
    size_t n_slots;
    struct slot *near; /* those alive together with the item to be placed, by offset */
    size_t n_near;
    struct edge *begins, *ends; /* of near, by address */
    int32_t *waiting;           /* items without a place */
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

static void put(struct repair *r, int32_t i, int64_t at)
{
    struct layout_item *x = &r->items[i];
    size_t low = 0, high = r->n_slots;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->slots[middle].offset <= at)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(r->slots + low + 1, r->slots + low, (r->n_slots - low) * sizeof(*r->slots));
    r->slots[low] = (struct slot){at, at + x->n_bytes, x->first, x->last, i};
    r->n_slots++;
    x->offset = at;
}

/* The tightest gap below the capacity, or -1; gathers the neighbours in time on the way. */
static int64_t find_gap(struct repair *r, const struct layout_item *x)
{
    int64_t at = 0, best = -1, tightest = INT64_MAX, size = x->n_bytes;
    int32_t first = x->first, last = x->last;
    size_t n_near = 0;
    for (size_t k = 0; k < r->n_slots; k++) {
        const struct slot *other = &r->slots[k];
        if (first > other->last || other->first > last)
            continue;
        int64_t gap = other->offset - at;
        if (gap >= size && gap < tightest) {
            best = at;
            tightest = gap;
        }
        at = MAX(at, other->end);
        r->near[n_near++] = *other;
    }
    r->n_near = n_near;
    r->work -= (int64_t)r->n_slots;
    return r->capacity - at >= size && r->capacity - at < tightest ? at : best;
}

static int by_address(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
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
    qsort(r->ends + 1, n, sizeof(*r->ends), by_address);
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
    size_t n_left = 0;
    for (size_t k = 0; k < r->n_slots; k++) {
        const struct slot *s = &r->slots[k];
        bool in_time = x->first <= s->last && s->first <= x->last;
        if (in_time && s->offset < at + x->n_bytes && at < s->end)
            r->waiting[r->n_waiting++] = s->index;
        else
            r->slots[n_left++] = *s;
    }
    r->n_slots = n_left;
    r->work -= (int64_t)r->n;
}

static void step(struct repair *r)
{
    int32_t i = take_dearest(r);
    const struct layout_item *x = &r->items[i];
    int64_t at = find_gap(r, x);
    if (at < 0) {
        at = cheapest_place(r, x);
        push_out(r, x, at);
        r->cost[i] = MIN(r->cost[i] + r->cost[i] / 2 + 1, MAX_COST);
    }
    put(r, i, at);
}

static int by_offset(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    int order = (x->offset > y->offset) - (x->offset < y->offset);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* What lies below the capacity stays; the rest waits. */
static void begin(struct repair *r)
{
    int64_t unit = (r->capacity >> COST_BITS) + 1;
    for (size_t i = 0; i < r->n; i++) {
        const struct layout_item *x = &r->items[i];
        int64_t end = x->offset + x->n_bytes;
        r->cost[i] = MIN((x->n_bytes / unit + 1) * ((int64_t)x->last - x->first + 1), MAX_COST);
        if (end <= r->capacity)
            r->slots[r->n_slots++] = (struct slot){x->offset, end, x->first, x->last, (int32_t)i};
        else
            r->waiting[r->n_waiting++] = (int32_t)i;
    }
    qsort(r->slots, r->n_slots, sizeof(*r->slots), by_offset);
}

enum status layout_repair(struct layout_item *items, size_t n, int64_t capacity, int64_t *work,
                          int64_t *height)
{
    struct repair r = {.items = items, .n = n, .capacity = capacity, .work = *work};
    enum status status;
    TRY_GOTO(mem_try_array(&r.slots, n, sizeof(*r.slots)), out);
    TRY_GOTO(mem_try_array(&r.near, n, sizeof(*r.near)), out);
    TRY_GOTO(mem_try_array(&r.begins, n + 1, sizeof(*r.begins)), out);
    TRY_GOTO(mem_try_array(&r.ends, n + 1, sizeof(*r.ends)), out);
    TRY_GOTO(mem_try_array(&r.waiting, n, sizeof(*r.waiting)), out);
    TRY_GOTO(mem_try_array(&r.cost, n, sizeof(*r.cost)), out);
    begin(&r);
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
    mem_free(r.near);
    mem_free(r.begins);
    mem_free(r.ends);
    mem_free(r.waiting);
    mem_free(r.cost);
    return status;
}
