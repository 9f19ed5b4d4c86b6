#include "plan/gaps.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/vec.h"

enum { N_STRETCHES = 128, MOST_OF_SHORT = 3 };

/* A placed item. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

struct span {
    int64_t offset, end;
};

/* Both by offset; the spans of a stretch do not touch each other. */
struct placed_list {
    struct placed *items;
    size_t n, capacity;
};

struct span_list {
    struct span *items;
    size_t n, capacity;
};

struct gaps {
    int32_t width; /* of a stretch */
    struct placed_list longs, shorts[N_STRETCHES];
    struct span_list taken[N_STRETCHES]; /* by the short ones of the stretch */
    struct span_list around, joined;     /* what is in the way of a long one, but for the others */
    int64_t work;
};

enum status gaps_new(struct gaps **out, int32_t last_time)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    (*out)->width = last_time / N_STRETCHES + 1;
    return OK;
}

void gaps_free(struct gaps *g)
{
    for (int i = 0; g && i < N_STRETCHES; i++) {
        vec_release(&g->shorts[i]);
        vec_release(&g->taken[i]);
    }
    if (g) {
        vec_release(&g->longs);
        vec_release(&g->around);
        vec_release(&g->joined);
    }
    mem_free(g);
}

void gaps_clear(struct gaps *g)
{
    for (int i = 0; i < N_STRETCHES; i++)
        g->shorts[i].n = g->taken[i].n = 0;
    g->longs.n = 0;
    g->work = 0;
}

int64_t gaps_work(const struct gaps *g)
{
    return g->work;
}

static bool is_short(const struct gaps *g, const struct layout_item *x)
{
    return x->last / g->width - x->first / g->width < MOST_OF_SHORT;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* A walk over one list, past what does not live together with the item. */
struct walk {
    const struct placed *begin, *at, *end;
};

static void skip(struct walk *w, const struct layout_item *x)
{
    while (w->at < w->end && (x->first > w->at->last || w->at->first > x->last))
        w->at++;
}

static struct walk walk_of(const struct placed_list *list, const struct layout_item *x)
{
    if (list->n == 0) /* there is no memory to point into */
        return (struct walk){0};
    struct walk w = {list->items, list->items, list->items + list->n};
    skip(&w, x);
    return w;
}

/* Long ones, and the short ones of the item's stretches. */
static int64_t find_for_short(struct gaps *g, const struct layout_item *x)
{
    int first = x->first / g->width, last = x->last / g->width;
    struct walk walks[1 + MOST_OF_SHORT] = {walk_of(&g->longs, x)};
    int n_walks = 1;
    int64_t at = 0;
    for (int i = first; i <= last; i++)
        walks[n_walks++] = walk_of(&g->shorts[i], x);
    for (;;) {
        struct walk *lowest = NULL;
        for (int i = 0; i < n_walks; i++) {
            struct walk *w = &walks[i];
            if (w->at < w->end && (!lowest || w->at->offset < lowest->at->offset))
                lowest = w;
        }
        if (!lowest || lowest->at->offset - at >= x->n_bytes)
            break;
        at = MAX(at, lowest->at->end);
        lowest->at++;
        skip(lowest, x);
    }
    for (int i = 0; i < n_walks; i++)
        g->work += walks[i].at - walks[i].begin;
    return at;
}

/* Behind the last span, or joined with it; spans come by offset. */
static enum status append(struct span_list *list, struct span s)
{
    struct span *last = list->n > 0 ? &list->items[list->n - 1] : NULL;
    if (!last || s.offset > last->end)
        return vec_push(list, s);
    last->end = MAX(last->end, s.end);
    return OK;
}

/* What is in the way so far, and the short ones of one more stretch: those that live together with
 * the item, or where it lives through all of the stretch whatever is taken there. */
static enum status join(struct gaps *g, const struct layout_item *x, int stretch, bool whole)
{
    const struct placed_list *list = &g->shorts[stretch];
    const struct span_list *taken = &g->taken[stretch], before = g->around;
    struct walk shorts = walk_of(list, x);
    size_t i = 0, k = 0;
    g->around = g->joined;
    g->around.n = 0;
    g->joined = before;
    for (;;) {
        bool has_more = whole ? k < taken->n : shorts.at < shorts.end;
        if (!has_more && i == before.n)
            break;
        struct span s = {0};
        if (has_more)
            s = whole ? taken->items[k] : (struct span){shorts.at->offset, shorts.at->end};
        if (!has_more || (i < before.n && before.items[i].offset < s.offset)) {
            TRY(append(&g->around, before.items[i++]));
            continue;
        }
        TRY(append(&g->around, s));
        k++;
        if (!whole) {
            shorts.at++;
            skip(&shorts, x);
        }
    }
    g->work += (int64_t)(i + k);
    return OK;
}

static enum status look_around(struct gaps *g, const struct layout_item *x)
{
    int first = x->first / g->width, last = x->last / g->width;
    g->around.n = 0;
    for (int i = first; i <= last; i++)
        TRY(join(g, x, i, i > first && i < last));
    return OK;
}

static enum status find_for_long(struct gaps *g, const struct layout_item *x, int64_t *out)
{
    struct walk longs = walk_of(&g->longs, x);
    size_t k = 0;
    int64_t at = 0;
    TRY(look_around(g, x));
    for (;;) {
        bool has_span = k < g->around.n, has_long = longs.at < longs.end;
        if (!has_span && !has_long)
            break;
        bool is_long = has_long && (!has_span || longs.at->offset < g->around.items[k].offset);
        struct span s =
            is_long ? (struct span){longs.at->offset, longs.at->end} : g->around.items[k];
        if (s.offset - at >= x->n_bytes)
            break;
        at = MAX(at, s.end);
        if (is_long) {
            longs.at++;
            skip(&longs, x);
        } else {
            k++;
        }
    }
    g->work += longs.at - longs.begin;
    *out = at;
    return OK;
}

/* ---- placing --------------------------------------------------------------------------------- */

static size_t place_in(const struct placed_list *list, int64_t offset)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->items[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum status insert(struct placed_list *list, struct placed p)
{
    size_t k = place_in(list, p.offset);
    TRY(vec_push(list, p));
    memmove(list->items + k + 1, list->items + k, (list->n - 1 - k) * sizeof(p));
    list->items[k] = p;
    return OK;
}

/* Joins what the span touches or overlaps. */
static enum status take(struct span_list *list, struct span s)
{
    size_t first = 0, end;
    while (first < list->n && list->items[first].end < s.offset)
        first++;
    for (end = first; end < list->n && list->items[end].offset <= s.end; end++) {
        s.offset = MIN(s.offset, list->items[end].offset);
        s.end = MAX(s.end, list->items[end].end);
    }
    if (end == first)
        TRY(vec_push(list, s));
    size_t n_behind = (end == first ? list->n - 1 : list->n) - end;
    memmove(list->items + first + 1, list->items + end, n_behind * sizeof(s));
    list->items[first] = s;
    list->n = first + 1 + n_behind;
    return OK;
}

static enum status add(struct gaps *g, const struct layout_item *x)
{
    const struct placed p = {x->offset, x->offset + x->n_bytes, x->first, x->last};
    if (!is_short(g, x))
        return insert(&g->longs, p);
    for (int i = x->first / g->width; i <= x->last / g->width; i++) {
        TRY(insert(&g->shorts[i], p));
        TRY(take(&g->taken[i], (struct span){p.offset, p.end}));
    }
    return OK;
}

enum status gaps_place(struct gaps *g, struct layout_item *item)
{
    item->offset = 0;
    if (item->last < item->first)
        return OK; /* it never lives */
    if (is_short(g, item))
        item->offset = find_for_short(g, item);
    else
        TRY(find_for_long(g, item, &item->offset));
    return add(g, item);
}
