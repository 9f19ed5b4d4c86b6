/* layout.c: greedy by size into the lowest gap, a portfolio, then local search.
 *
 * Training programs are easy for offline greedy: buffers sorted by size land on the lower bound on
 * transformer programs, where online best fit is up to 12 % over. What remains is closed by
 * hoisting: the buffer that touches the top is moved to the front of the order and everything is
 * placed again.
 */
#include "plan/layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_HOISTS = 400 };

struct solver {
    struct layout_item *items; /* sizes aligned */
    size_t n;
    int32_t *order;  /* placement order under trial */
    int32_t *placed; /* items placed so far, by offset */
    int64_t *best;   /* offsets of the best trial */
    int64_t best_height;
    int n_tries;
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

static bool meet(const struct layout_item *a, const struct layout_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Places item i into the lowest gap among the placed items alive at the same time, and keeps
 * `placed` sorted by offset. */
static void place(struct solver *s, int32_t i, size_t n_placed)
{
    struct layout_item *item = &s->items[i];
    int64_t at = 0;
    for (size_t k = 0; k < n_placed; k++) {
        const struct layout_item *other = &s->items[s->placed[k]];
        if (!meet(item, other))
            continue;
        if (other->offset - at >= item->n_bytes)
            break;
        at = MAX(at, other->offset + other->n_bytes);
    }
    item->offset = at;
    size_t k = n_placed;
    while (k > 0 && s->items[s->placed[k - 1]].offset > at) {
        s->placed[k] = s->placed[k - 1];
        k--;
    }
    s->placed[k] = i;
}

/* Places everything in s->order; remembers the result when it is the best so far. */
static int64_t try_order(struct solver *s)
{
    int64_t height = 0;
    for (size_t k = 0; k < s->n; k++) {
        place(s, s->order[k], k);
        const struct layout_item *item = &s->items[s->order[k]];
        height = MAX(height, item->offset + item->n_bytes);
    }
    s->n_tries++;
    if (s->n_tries == 1 || height < s->best_height) {
        s->best_height = height;
        for (size_t i = 0; i < s->n; i++)
            s->best[i] = s->items[i].offset;
    }
    return height;
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct keyed {
    double key, tie;
    int32_t index;
};

static int by_key_descending(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    if (x->tie != y->tie)
        return x->tie > y->tie ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static double key_size(const struct layout_item *i)
{
    return (double)i->n_bytes;
}

static double key_width(const struct layout_item *i)
{
    return (double)(i->last - i->first + 1);
}

static double key_area(const struct layout_item *i)
{
    return key_size(i) * key_width(i);
}

static double key_start(const struct layout_item *i)
{
    return -(double)i->first;
}

static const struct {
    const char *name;
    double (*key)(const struct layout_item *);
    double (*tie)(const struct layout_item *);
} portfolio[] = {
    {"size", key_size, key_width},  {"area", key_area, key_size},
    {"width", key_width, key_size}, {"size, by start", key_size, key_start},
    {"start", key_start, key_size},
};

static enum status sort_order(struct solver *s, double (*key)(const struct layout_item *),
                              double (*tie)(const struct layout_item *))
{
    struct keyed *k;
    TRY(mem_try_array(&k, MAX(s->n, (size_t)1), sizeof(*k)));
    for (size_t i = 0; i < s->n; i++)
        k[i] = (struct keyed){key(&s->items[i]), tie(&s->items[i]), (int32_t)i};
    qsort(k, s->n, sizeof(*k), by_key_descending);
    for (size_t i = 0; i < s->n; i++)
        s->order[i] = k[i].index;
    mem_free(k);
    return OK;
}

/* The last item in the order that touches the top goes to the front. */
static bool hoist_top(struct solver *s, int64_t height)
{
    for (size_t k = s->n; k-- > 1;) {
        const struct layout_item *item = &s->items[s->order[k]];
        if (item->offset + item->n_bytes != height)
            continue;
        int32_t moved = s->order[k];
        size_t to = k / 2; /* not always first: keeps the large ones low */
        memmove(s->order + to + 1, s->order + to, (k - to) * sizeof(*s->order));
        s->order[to] = moved;
        return true;
    }
    return false;
}

static enum status search(struct solver *s, struct layout_result *r)
{
    int winner = 0;
    for (size_t p = 0; p < ARRAY_LEN(portfolio); p++) {
        int64_t before = s->n_tries ? s->best_height : INT64_MAX;
        TRY(sort_order(s, portfolio[p].key, portfolio[p].tie));
        if (try_order(s) < before)
            winner = (int)p;
        r->method = portfolio[winner].name;
        if (s->best_height == r->lower_bound)
            return OK;
    }
    TRY(sort_order(s, portfolio[winner].key, portfolio[winner].tie));
    int64_t height = try_order(s);
    for (int i = 0; i < MAX_HOISTS && s->best_height > r->lower_bound; i++) {
        if (!hoist_top(s, height))
            break;
        int64_t before = s->best_height;
        height = try_order(s);
        if (height < before)
            r->method = "local search";
    }
    return OK;
}

enum status layout_solve(struct layout_item *items, size_t n, int64_t align,
                         struct layout_result *result)
{
    struct solver s = {.n = n};
    enum status status;
    *result = (struct layout_result){.method = "empty"};
    TRY(layout_lower_bound(items, n, align, &result->lower_bound, &result->peak_time));
    if (n == 0)
        return OK;

    TRY_GOTO(mem_try_array(&s.items, n, sizeof(*s.items)), out);
    TRY_GOTO(mem_try_array(&s.order, n, sizeof(*s.order)), out);
    TRY_GOTO(mem_try_array(&s.placed, n, sizeof(*s.placed)), out);
    TRY_GOTO(mem_try_array(&s.best, n, sizeof(*s.best)), out);
    for (size_t i = 0; i < n; i++) {
        s.items[i] = items[i];
        s.items[i].n_bytes = aligned(items[i].n_bytes, align);
    }
    TRY_GOTO(search(&s, result), out);
    for (size_t i = 0; i < n; i++)
        items[i].offset = s.best[i];
    result->height = s.best_height;
    result->n_tries = s.n_tries;
out:
    mem_free(s.items);
    mem_free(s.order);
    mem_free(s.placed);
    mem_free(s.best);
    return status;
}
