/* layout.c: greedy into the lowest gap, a portfolio of orders, then a search led by conflicts.
 *
 * Training programs are easy for offline greedy: buffers sorted by size land on the lower bound on
 * most transformer programs, where online best fit is up to 12 % over. Where they do not, some
 * instant is so full that it leaves no room for gaps: what is alive there has to be placed first,
 * as a stack, with the rest fitted around it. The fullest instant is tried as that; the search then
 * adds, again and again, the fullest instant under the buffer that sticks out at the top.
 */
#include "plan/layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    MAX_INSTANTS = 24,
    MAX_ROUNDS = 60,
    MAX_WORK = 60000000, /* comparisons one search may spend: a fraction of a second */
};

/* A placed item; the array of these is scanned for every placement, so it is kept small. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

struct solver {
    struct layout_item *items; /* sizes aligned */
    size_t n;
    int32_t *order;        /* placement order under trial */
    struct placed *placed; /* so far, by offset */
    int64_t *best;         /* offsets of the best trial */
    int64_t best_height;
    int64_t *live; /* bytes alive at each instant from 0 to the last death */
    int32_t n_times;
    int32_t instants[MAX_INSTANTS]; /* placed first, in this order */
    int n_instants;
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
    {"start", false, start, size},         {"peak, by width", true, width, size},
    {"peak, by start", true, start, size}, {"peak, by size", true, size, width},
    {"peak, by area", true, area, size},
};

/* Items alive at an instant that goes first; the earlier the instant in the list, the higher. */
static int rank_of(const struct solver *s, const struct layout_item *x)
{
    for (int i = 0; i < s->n_instants; i++) {
        if (x->first <= s->instants[i] && s->instants[i] <= x->last)
            return s->n_instants - i;
    }
    return 0;
}

static enum status sort_order(struct solver *s, const struct method *m)
{
    struct keyed *k;
    TRY(mem_try_array(&k, s->n, sizeof(*k)));
    for (size_t i = 0; i < s->n; i++) {
        const struct layout_item *x = &s->items[i];
        int rank = m->peak_first ? rank_of(s, x) : 0;
        bool rest = m->peak_first && rank == 0;
        k[i] = (struct keyed){rank, rest ? size(x) : m->key(x), rest ? width(x) : m->tie(x),
                              (int32_t)i};
    }
    qsort(k, s->n, sizeof(*k), by_key_descending);
    for (size_t i = 0; i < s->n; i++)
        s->order[i] = k[i].index;
    mem_free(k);
    return OK;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The instant where most bytes are alive under the item that sticks out. */
static int32_t fullest_under_top(const struct solver *s, int64_t height)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct layout_item *x = &s->items[i];
        if (x->offset + x->n_bytes != height)
            continue;
        int32_t at = x->first;
        for (int32_t t = x->first; t <= x->last; t++)
            at = s->live[t] > s->live[at] ? t : at;
        return at;
    }
    return 0;
}

/* A new instant joins the end of the list; one that goes first already goes before its neighbour.
 */
static bool promote(struct solver *s, int32_t instant)
{
    for (int i = 0; i < s->n_instants; i++) {
        if (s->instants[i] != instant)
            continue;
        if (i > 0) {
            s->instants[i] = s->instants[i - 1];
            s->instants[i - 1] = instant;
        }
        return i > 0;
    }
    if (s->n_instants == MAX_INSTANTS)
        return false;
    s->instants[s->n_instants++] = instant;
    return true;
}

static enum status search(struct solver *s, const struct method *m, struct layout_result *r)
{
    int64_t per_try = (int64_t)s->n * (int64_t)s->n / 2 + 1;
    int64_t n_rounds = MIN((int64_t)MAX_ROUNDS, MAX_WORK / per_try);
    s->instants[0] = r->peak_time;
    s->n_instants = 1;
    for (int64_t i = 0; i < n_rounds && s->best_height > r->lower_bound; i++) {
        TRY(sort_order(s, m));
        int64_t before = s->best_height, height = try_order(s);
        if (height < before)
            r->method = "search";
        if (!promote(s, fullest_under_top(s, height)))
            break;
    }
    return OK;
}

static enum status try_all(struct solver *s, struct layout_result *r)
{
    s->instants[0] = r->peak_time;
    s->n_instants = 1;
    for (size_t p = 0; p < ARRAY_LEN(portfolio); p++) {
        int64_t before = s->n_tries ? s->best_height : INT64_MAX;
        TRY(sort_order(s, &portfolio[p]));
        if (try_order(s) < before)
            r->method = portfolio[p].name;
        if (s->best_height == r->lower_bound)
            return OK;
    }
    for (size_t p = 0; p < ARRAY_LEN(portfolio) && s->best_height > r->lower_bound; p++) {
        if (portfolio[p].peak_first)
            TRY(search(s, &portfolio[p], r));
    }
    return OK;
}

/* Bytes alive at each instant, for items that die by n_times. */
static enum status find_live(struct solver *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->n_times = MAX(s->n_times, s->items[i].last + 1);
    TRY(mem_try_array(&s->live, (size_t)s->n_times + 1, sizeof(*s->live)));
    for (size_t i = 0; i < s->n; i++) {
        s->live[s->items[i].first] += s->items[i].n_bytes;
        s->live[s->items[i].last + 1] -= s->items[i].n_bytes;
    }
    for (int32_t t = 1; t <= s->n_times; t++)
        s->live[t] += s->live[t - 1];
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
    TRY_GOTO(find_live(&s), out);
    TRY_GOTO(try_all(&s, result), out);
    for (size_t i = 0; i < n; i++)
        items[i].offset = s.best[i];
    result->height = s.best_height;
    result->n_tries = s.n_tries;
out:
    mem_free(s.items);
    mem_free(s.order);
    mem_free(s.placed);
    mem_free(s.best);
    mem_free(s.live);
    return status;
}
