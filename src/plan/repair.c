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

/* Placed items in an order, what is asked of all of them for every step side by side. */
struct order {
    int64_t (*key)(const struct layout_item *x);
    int32_t *slots, *slot_first, *slot_last;
    size_t n;
    struct neighbour *near; /* those alive together with the item to be placed */
    size_t n_near;
};

enum { BY_OFFSET, BY_END, N_ORDERS };

struct repair {
    struct layout_item *items;
    size_t n;
    int64_t capacity;
    struct order orders[N_ORDERS];
    uint8_t *is_near;           /* per slot of an order */
    struct edge *begins, *ends; /* of those alive with the item, by address */
    int32_t *waiting;           /* items without a place */
    size_t n_waiting;
    int64_t *cost; /* of pushing out an item */
    int64_t work;  /* left */
};

static int64_t offset_of(const struct layout_item *x)
{
    return x->offset;
}

static int64_t end_of(const struct layout_item *x)
{
    return x->offset + x->n_bytes;
}

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

static void copy_slots(struct order *o, size_t to, size_t from, size_t n)
{
    memmove(o->slots + to, o->slots + from, n * sizeof(*o->slots));
    memmove(o->slot_first + to, o->slot_first + from, n * sizeof(*o->slot_first));
    memmove(o->slot_last + to, o->slot_last + from, n * sizeof(*o->slot_last));
}

static void set_slot(struct order *o, size_t k, const struct layout_item *items, int32_t i)
{
    o->slots[k] = i;
    o->slot_first[k] = items[i].first;
    o->slot_last[k] = items[i].last;
}

static void insert(struct order *o, const struct layout_item *items, int32_t i)
{
    const int64_t key = o->key(&items[i]);
    size_t low = 0, high = o->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (o->key(&items[o->slots[middle]]) <= key)
            low = middle + 1;
        else
            high = middle;
    }
    copy_slots(o, low + 1, low, o->n - low);
    set_slot(o, low, items, i);
    o->n++;
}

static void put(struct repair *r, int32_t i, int64_t at)
{
    r->items[i].offset = at;
    for (int k = 0; k < N_ORDERS; k++)
        insert(&r->orders[k], r->items, i);
}

/* The slots of what is alive together with x, one comparison like the other: the compiler makes
 * many of them at once. */
static UNSANITIZED void mark_near(const struct order *o, const struct layout_item *x,
                                  uint8_t *restrict is_near)
{
    const int32_t first = x->first, last = x->last;
    const int32_t *restrict firsts = o->slot_first, *restrict lasts = o->slot_last;
    const size_t n = o->n;
    sanitizer_expect(firsts, n * sizeof(*firsts));
    sanitizer_expect(lasts, n * sizeof(*lasts));
    sanitizer_expect(is_near, n);
    for (size_t k = 0; k < n; k++)
        is_near[k] = (uint8_t)(firsts[k] <= last) & (uint8_t)(lasts[k] >= first);
    memset(is_near + n, 0, sizeof(uint64_t)); /* what gather_near reads at once */
}

static void gather_near(struct repair *r, struct order *o, const struct layout_item *x)
{
    size_t n_near = 0;
    mark_near(o, x, r->is_near);
    for (size_t word = 0; word < o->n; word += sizeof(uint64_t)) {
        uint64_t any;
        memcpy(&any, r->is_near + word, sizeof(any));
        for (size_t k = word; any && k < word + sizeof(any); k++) {
            if (!r->is_near[k])
                continue;
            const struct layout_item *other = &r->items[o->slots[k]];
            o->near[n_near++] =
                (struct neighbour){other->offset, end_of(other), o->slots[k], (int32_t)k};
        }
    }
    o->n_near = n_near;
}

/* The tightest gap between the neighbours in time, below the capacity; or -1. */
static int64_t find_gap(const struct repair *r, const struct layout_item *x)
{
    const struct order *o = &r->orders[BY_OFFSET];
    int64_t at = 0, best = -1, tightest = INT64_MAX, size = x->n_bytes;
    for (size_t k = 0; k < o->n_near; k++) {
        int64_t gap = o->near[k].offset - at;
        if (gap >= size && gap < tightest) {
            best = at;
            tightest = gap;
        }
        at = MAX(at, o->near[k].end);
    }
    return r->capacity - at >= size && r->capacity - at < tightest ? at : best;
}

/* Where x pushes out least. What a place costs is what begins below its end less what ends below
 * its start; only places on top of a neighbour or right under one need be looked at. */
static int64_t cheapest_place(struct repair *r, const struct layout_item *x)
{
    const struct neighbour *by_offset = r->orders[BY_OFFSET].near, *by_end = r->orders[BY_END].near;
    size_t n = r->orders[BY_OFFSET].n_near, n_begun = 0, n_ended = 0;
    int64_t best = 0, least = INT64_MAX, begun = 0, ended = 0;
    for (size_t k = 0; k < n; k++) {
        r->begins[k] = (struct edge){by_offset[k].offset, r->cost[by_offset[k].index]};
        r->ends[k + 1] = (struct edge){by_end[k].end, r->cost[by_end[k].index]};
    }
    r->begins[n] = (struct edge){r->capacity, 0};
    r->ends[0] = (struct edge){0, 0};
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

static bool is_in_the_way(const struct neighbour *s, const struct layout_item *x, int64_t at)
{
    return s->offset < at + x->n_bytes && at < s->end;
}

/* Everything alive with x in [at, at + size) leaves the order. */
static void leave_order(struct order *o, const struct layout_item *x, int64_t at)
{
    size_t n_left = 0, next = 0; /* slots that stay, and that were looked at */
    for (size_t k = 0; k < o->n_near; k++) {
        const struct neighbour *s = &o->near[k];
        if (!is_in_the_way(s, x, at))
            continue;
        size_t n = (size_t)s->slot - next;
        if (n_left != next)
            copy_slots(o, n_left, next, n);
        n_left += n;
        next += n + 1;
    }
    if (n_left != next)
        copy_slots(o, n_left, next, o->n - next);
    o->n -= next - n_left;
}

/* It loses its place. */
static void push_out(struct repair *r, const struct layout_item *x, int64_t at)
{
    const struct order *o = &r->orders[BY_OFFSET];
    for (size_t k = 0; k < o->n_near; k++) {
        if (is_in_the_way(&o->near[k], x, at))
            r->waiting[r->n_waiting++] = o->near[k].index;
    }
    for (int k = 0; k < N_ORDERS; k++)
        leave_order(&r->orders[k], x, at);
    r->work -= (int64_t)r->n;
}

static void step(struct repair *r)
{
    int32_t i = take_dearest(r);
    const struct layout_item *x = &r->items[i];
    gather_near(r, &r->orders[BY_OFFSET], x);
    r->work -= (int64_t)r->orders[BY_OFFSET].n;
    int64_t at = find_gap(r, x);
    if (at < 0) {
        gather_near(r, &r->orders[BY_END], x);
        at = cheapest_place(r, x);
        push_out(r, x, at);
        r->cost[i] = MIN(r->cost[i] + r->cost[i] / 2 + 1, MAX_COST);
    }
    put(r, i, at);
}

struct placed {
    int64_t key;
    int32_t index;
};

static int by_key(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    int order = (x->key > y->key) - (x->key < y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static enum status fill_order(struct order *o, const struct layout_item *items, size_t n,
                              int64_t capacity)
{
    struct placed *placed;
    TRY(mem_try_array(&placed, n, sizeof(*placed)));
    for (size_t i = 0; i < n; i++) {
        if (end_of(&items[i]) <= capacity)
            placed[o->n++] = (struct placed){o->key(&items[i]), (int32_t)i};
    }
    qsort(placed, o->n, sizeof(*placed), by_key);
    for (size_t k = 0; k < o->n; k++)
        set_slot(o, k, items, placed[k].index);
    mem_free(placed);
    return OK;
}

static enum status open_order(struct order *o, size_t n)
{
    TRY(mem_try_array(&o->slots, n, sizeof(*o->slots)));
    TRY(mem_try_array(&o->slot_first, n, sizeof(*o->slot_first)));
    TRY(mem_try_array(&o->slot_last, n, sizeof(*o->slot_last)));
    return mem_try_array(&o->near, n, sizeof(*o->near));
}

static void close_order(struct order *o)
{
    mem_free(o->slots);
    mem_free(o->slot_first);
    mem_free(o->slot_last);
    mem_free(o->near);
}

/* What lies below the capacity stays; the rest waits. */
static enum status begin(struct repair *r)
{
    int64_t unit = (r->capacity >> COST_BITS) + 1;
    for (size_t i = 0; i < r->n; i++) {
        const struct layout_item *x = &r->items[i];
        r->cost[i] = MIN((x->n_bytes / unit + 1) * ((int64_t)x->last - x->first + 1), MAX_COST);
        if (end_of(x) > r->capacity)
            r->waiting[r->n_waiting++] = (int32_t)i;
    }
    for (int k = 0; k < N_ORDERS; k++)
        TRY(fill_order(&r->orders[k], r->items, r->n, r->capacity));
    return OK;
}

enum status layout_repair(struct layout_item *items, size_t n, int64_t capacity, int64_t *work,
                          int64_t *height)
{
    struct repair r = {.items = items,
                       .n = n,
                       .capacity = capacity,
                       .orders = {[BY_OFFSET] = {.key = offset_of}, [BY_END] = {.key = end_of}},
                       .work = *work};
    enum status status;
    for (int k = 0; k < N_ORDERS; k++)
        TRY_GOTO(open_order(&r.orders[k], n), out);
    TRY_GOTO(mem_try_array(&r.is_near, n + sizeof(uint64_t), sizeof(*r.is_near)), out);
    TRY_GOTO(mem_try_array(&r.begins, n + 1, sizeof(*r.begins)), out);
    TRY_GOTO(mem_try_array(&r.ends, n + 1, sizeof(*r.ends)), out);
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
        *height = MAX(*height, end_of(&items[i]));
out:
    for (int k = 0; k < N_ORDERS; k++)
        close_order(&r.orders[k]);
    mem_free(r.is_near);
    mem_free(r.begins);
    mem_free(r.ends);
    mem_free(r.waiting);
    mem_free(r.cost);
    return status;
}
