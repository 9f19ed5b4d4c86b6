/* layout.c: greedy into the lowest gap over a portfolio of orders, then repair of what sticks out.
 *
 * Training programs are easy for offline greedy: buffers sorted by size land on the lower bound on
 * most transformer programs, where online best fit is up to 12 % over. Where they do not, some
 * instant is so full that it leaves no room for gaps, and no one order suits all such instants:
 * what is alive at the fullest has to be a stack, a later one wants buffers in the order of their
 * birth. Such a layout is wrong in a few places only, which repair.c puts right.
 */
#include "plan/layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/repair.h"

enum {
    NEAR_BITS = 11,          /* within 2^-11 of the lower bound (0.05 %) is near enough to stop */
    WORK_PER_ITEM = 1000,    /* comparisons one repair may spend for each item */
    MAX_WORK = 60 * 1000000, /* and all together: a fraction of a second */
    ORDER_WORK = 500 * 1000000, /* comparisons that the orders may take: all of them for programs of
                                   some ten thousand buffers, one at least for any */
};

/* A placed item; the array of these is scanned for every placement, so it is kept small. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

struct solver {
    struct layout_item *items; /* sizes aligned */
    size_t n;
    int64_t align;
    int32_t *order;        /* placement order under trial */
    struct placed *placed; /* so far, by offset */
    int64_t *tried;        /* offsets from each order of the portfolio */
    int64_t *best;         /* offsets of the lowest layout so far */
    int64_t work;          /* left for repairs */
    struct layout_result *result;
};

struct event {
    int32_t time; /* a death counts at last + 1 */
    int64_t delta;
};

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->delta > y->delta) - (x->delta < y->delta); /* deaths first */
}

static int64_t aligned(int64_t n_bytes, int64_t align)
{
    return (n_bytes + align - 1) / align * align;
}

enum status layout_lower_bound(const struct layout_item *items, size_t n, int64_t align,
                               int64_t *n_bytes, int32_t *peak_time)
{
    struct event *events;
    TRY(mem_try_array(&events, MAX(2 * n, (size_t)1), sizeof(*events)));
    for (size_t i = 0; i < n; i++) {
        int64_t size = aligned(items[i].n_bytes, align);
        events[2 * i] = (struct event){items[i].first, size};
        events[2 * i + 1] = (struct event){items[i].last + 1, -size};
    }
    qsort(events, 2 * n, sizeof(*events), by_time);
    int64_t live = 0, most = 0;
    int32_t when = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        live += events[i].delta;
        if (live > most) {
            most = live;
            when = events[i].time;
        }
    }
    mem_free(events);
    *n_bytes = most;
    if (peak_time)
        *peak_time = when;
    return OK;
}

/* Places item i into the lowest gap among the placed items alive at the same time, and keeps
 * `placed` sorted by offset. */
static void place(struct solver *s, int32_t i, size_t n_placed)
{
    struct layout_item *item = &s->items[i];
    int32_t first = item->first, last = item->last;
    int64_t at = 0, n_bytes = item->n_bytes;
    size_t k = 0;
    for (; k < n_placed; k++) {
        const struct placed *other = &s->placed[k];
        if (first > other->last || other->first > last)
            continue;
        if (other->offset - at >= n_bytes)
            break;
        at = MAX(at, other->end);
    }
    item->offset = at;
    while (k > 0 && s->placed[k - 1].offset > at)
        k--;
    while (k < n_placed && s->placed[k].offset <= at)
        k++;
    memmove(s->placed + k + 1, s->placed + k, (n_placed - k) * sizeof(*s->placed));
    s->placed[k] = (struct placed){at, at + n_bytes, first, last};
}

/* Places everything in s->order; returns the height. */
static int64_t place_all(struct solver *s)
{
    int64_t height = 0;
    for (size_t k = 0; k < s->n; k++) {
        place(s, s->order[k], k);
        const struct layout_item *item = &s->items[s->order[k]];
        height = MAX(height, item->offset + item->n_bytes);
    }
    return height;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Items sort by decreasing rank, then key, then tie; equal ones by index. */
struct keyed {
    double rank, key, tie;
    int32_t index;
};

static int descending(double x, double y)
{
    return x == y ? 0 : x > y ? -1 : 1;
}

static int by_key_descending(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    int order = descending(x->rank, y->rank);
    if (order == 0)
        order = descending(x->key, y->key);
    if (order == 0)
        order = descending(x->tie, y->tie);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static double size(const struct layout_item *i)
{
    return (double)i->n_bytes;
}

static double width(const struct layout_item *i)
{
    return (double)(i->last - i->first + 1);
}

static double area(const struct layout_item *i)
{
    return size(i) * width(i);
}

static double end(const struct layout_item *i)
{
    return (double)i->last;
}

static double start(const struct layout_item *i)
{
    return -(double)i->first;
}

static const struct method {
    const char *name;
    bool peak_first;
    double (*key)(const struct layout_item *);
    double (*tie)(const struct layout_item *);
} portfolio[] = {
    {"size", false, size, width},          {"area", false, area, size},
    {"width", false, width, size},         {"size, by start", false, size, start},
    {"start", false, start, size},         {"end", false, end, size},
    {"peak, by width", true, width, size}, {"peak, by start", true, start, size},
    {"peak, by end", true, end, size},     {"peak, by size", true, size, width},
    {"peak, by area", true, area, size},
};

enum { N_METHODS = ARRAY_LEN(portfolio) };

static enum status sort_order(struct solver *s, const struct method *m)
{
    struct keyed *k;
    TRY(mem_try_array(&k, s->n, sizeof(*k)));
    for (size_t i = 0; i < s->n; i++) {
        const struct layout_item *x = &s->items[i];
        bool at_peak = x->first <= s->result->peak_time && s->result->peak_time <= x->last;
        bool rest = m->peak_first && !at_peak;
        k[i] = (struct keyed){!rest, rest ? size(x) : m->key(x), rest ? width(x) : m->tie(x),
                              (int32_t)i};
    }
    qsort(k, s->n, sizeof(*k), by_key_descending);
    for (size_t i = 0; i < s->n; i++)
        s->order[i] = k[i].index;
    mem_free(k);
    return OK;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Where repair starts: the layout one order gave. */
struct start {
    int64_t height;
    const int64_t *offsets;
};

static int by_height(const void *a, const void *b)
{
    const struct start *x = a, *y = b;
    int order = (x->height > y->height) - (x->height < y->height);
    return order ? order : (x->offsets > y->offsets) - (x->offsets < y->offsets);
}

/* The layout in s->items becomes the best when it is lower. */
static void keep_lower(struct solver *s, int64_t height, const char *method)
{
    s->result->n_tries++;
    if (height >= s->result->height)
        return;
    s->result->height = height;
    s->result->method = method;
    for (size_t i = 0; i < s->n; i++)
        s->best[i] = s->items[i].offset;
}

/* Orders tried; they cost the square of the number of items each. */
static enum status try_orders(struct solver *s, struct start *starts, size_t *n_tried)
{
    double most = 2.0 * ORDER_WORK / ((double)s->n * (double)s->n);
    size_t n = most < 1.0 ? 1 : most < N_METHODS ? (size_t)most : N_METHODS;
    for (size_t p = 0; p < n && s->result->height > s->result->lower_bound; p++) {
        *n_tried = p + 1;
        int64_t *offsets = s->tried + p * s->n;
        TRY(sort_order(s, &portfolio[p]));
        starts[p] = (struct start){place_all(s), offsets};
        for (size_t i = 0; i < s->n; i++)
            offsets[i] = s->items[i].offset;
        keep_lower(s, starts[p].height, portfolio[p].name);
    }
    return OK;
}

static enum status repair_from(struct solver *s, const int64_t *offsets, int64_t capacity)
{
    int64_t share = MIN(s->work, WORK_PER_ITEM * (int64_t)s->n), left = share, height;
    for (size_t i = 0; i < s->n; i++)
        s->items[i].offset = offsets[i];
    TRY(layout_repair(s->items, s->n, capacity, &left, &height));
    s->work -= share - left;
    keep_lower(s, height, "repair");
    return OK;
}

/* Which start can be repaired does not show in its height, so all get their turn: first to come
 * near the bound, then, where none can, half way to it. Once near it, one more try to meet it. */
static enum status improve(struct solver *s, struct start *starts, size_t n)
{
    struct layout_result *r = s->result;
    int64_t near = r->lower_bound + (r->lower_bound >> NEAR_BITS) / s->align * s->align;
    int64_t capacity = near;
    qsort(starts, n, sizeof(*starts), by_height);
    for (int round = 0; round < 2 && r->height > capacity; round++) {
        for (size_t k = 0; k < n && r->height > capacity && s->work > 0; k++)
            TRY(repair_from(s, starts[k].offsets, capacity));
        if (r->height > capacity)
            capacity += (r->height - capacity) / 2 / s->align * s->align;
    }
    if (r->height <= near && s->work > 0)
        TRY(repair_from(s, s->best, r->lower_bound));
    return OK;
}

enum status layout_solve(struct layout_item *items, size_t n, int64_t align,
                         struct layout_result *result)
{
    struct solver s = {.n = n, .align = align, .work = MAX_WORK, .result = result};
    struct start starts[N_METHODS];
    size_t n_starts = 0;
    enum status status;
    *result = (struct layout_result){.method = "empty"};
    TRY(layout_lower_bound(items, n, align, &result->lower_bound, &result->peak_time));
    if (n == 0)
        return OK;

    TRY_GOTO(mem_try_array(&s.items, n, sizeof(*s.items)), out);
    TRY_GOTO(mem_try_array(&s.order, n, sizeof(*s.order)), out);
    TRY_GOTO(mem_try_array(&s.placed, n, sizeof(*s.placed)), out);
    TRY_GOTO(mem_try_array(&s.tried, N_METHODS * n, sizeof(*s.tried)), out);
    TRY_GOTO(mem_try_array(&s.best, n, sizeof(*s.best)), out);
    for (size_t i = 0; i < n; i++) {
        s.items[i] = items[i];
        s.items[i].n_bytes = aligned(items[i].n_bytes, align);
    }
    result->height = INT64_MAX;
    TRY_GOTO(try_orders(&s, starts, &n_starts), out);
    if (result->height > result->lower_bound)
        TRY_GOTO(improve(&s, starts, n_starts), out);
    for (size_t i = 0; i < n; i++)
        items[i].offset = s.best[i];
out:
    mem_free(s.items);
    mem_free(s.order);
    mem_free(s.placed);
    mem_free(s.tried);
    mem_free(s.best);
    return status;
}
