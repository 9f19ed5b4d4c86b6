#include "plan/gaps.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/vec.h"

enum {
    N_LEVELS = 2,
    MOST_STRETCHES = 512,
    MOST_OF_SHORT = 3, /* stretches that a short item lives through */
    MOST_WALKS = 1 + N_LEVELS * MOST_OF_SHORT + 1,
};

static const int n_stretches[N_LEVELS] = {MOST_STRETCHES, 32};

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

struct stretch {
    struct placed_list shorts;
    struct span_list taken; /* by these */
};

struct level {
    int32_t width; /* of a stretch */
    struct stretch stretches[MOST_STRETCHES];
};

struct gaps {
    struct level levels[N_LEVELS];
    struct placed_list longs;
    struct span_list around, joined; /* what is in the way, of levels where the item is long */
    int64_t work;
};

enum status gaps_new(struct gaps **out, int32_t last_time)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    for (int l = 0; l < N_LEVELS; l++)
        (*out)->levels[l].width = last_time / n_stretches[l] + 1;
    return OK;
}

void gaps_free(struct gaps *g)
{
    for (int l = 0; g && l < N_LEVELS; l++) {
        for (int i = 0; i < n_stretches[l]; i++) {
            vec_release(&g->levels[l].stretches[i].shorts);
            vec_release(&g->levels[l].stretches[i].taken);
        }
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
    for (int l = 0; l < N_LEVELS; l++) {
        for (int i = 0; i < n_stretches[l]; i++)
            g->levels[l].stretches[i].shorts.n = g->levels[l].stretches[i].taken.n = 0;
    }
    g->longs.n = 0;
    g->work = 0;
}

int64_t gaps_work(const struct gaps *g)
{
    return g->work;
}

static bool is_short(const struct level *l, const struct layout_item *x)
{
    return x->last / l->width - x->first / l->width < MOST_OF_SHORT;
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
static enum status join(struct gaps *g, const struct layout_item *x, const struct stretch *s,
                        bool whole)
{
    const struct span_list *taken = &s->taken, before = g->around;
    struct walk shorts = walk_of(&s->shorts, x);
    size_t i = 0, k = 0;
    if (s->shorts.n == 0)
        return OK;
    g->around = g->joined;
    g->around.n = 0;
    g->joined = before;
    for (;;) {
        bool has_more = whole ? k < taken->n : shorts.at < shorts.end;
        if (!has_more && i == before.n)
            break;
        struct span next = {0};
        if (has_more)
            next = whole ? taken->items[k] : (struct span){shorts.at->offset, shorts.at->end};
        if (!has_more || (i < before.n && before.items[i].offset < next.offset)) {
            TRY(append(&g->around, before.items[i++]));
            continue;
        }
        TRY(append(&g->around, next));
        k++;
        if (!whole) {
            shorts.at++;
            skip(&shorts, x);
        }
    }
    g->work += (int64_t)(i + k);
    return OK;
}

struct walks {
    struct walk items[MOST_WALKS];
    int n;
};

/* The short ones of a level: each stretch a walk of its own, or of a long item all of them in what
 * is around. */
static enum status look_at(struct gaps *g, const struct level *l, const struct layout_item *x,
                           struct walks *w)
{
    int first = x->first / l->width, last = x->last / l->width;
    for (int i = first; i <= last; i++) {
        if (is_short(l, x))
            w->items[w->n++] = walk_of(&l->stretches[i].shorts, x);
        else
            TRY(join(g, x, &l->stretches[i], i > first && i < last));
    }
    return OK;
}

/* Walks that have come to their end are left out. */
static void drop_ended(struct gaps *g, struct walks *w)
{
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->items[i].at < w->items[i].end)
            w->items[n++] = w->items[i];
        else
            g->work += w->items[i].at - w->items[i].begin;
    }
    w->n = n;
}

/* The lowest gap among what the walks come by and what is around. */
static int64_t find_gap(struct gaps *g, const struct layout_item *x, struct walks *w)
{
    int64_t at = 0;
    size_t k = 0;
    drop_ended(g, w);
    for (;;) {
        struct walk *lowest = NULL;
        struct span next = {INT64_MAX, INT64_MAX};
        if (k < g->around.n)
            next = g->around.items[k];
        for (int i = 0; i < w->n; i++) {
            if (w->items[i].at->offset < next.offset) {
                lowest = &w->items[i];
                next = (struct span){lowest->at->offset, lowest->at->end};
            }
        }
        if (next.offset - at >= x->n_bytes)
            break;
        at = MAX(at, next.end);
        if (!lowest) {
            k++;
            continue;
        }
        lowest->at++;
        skip(lowest, x);
        if (lowest->at == lowest->end)
            drop_ended(g, w);
    }
    for (int i = 0; i < w->n; i++)
        g->work += w->items[i].at - w->items[i].begin;
    return at;
}

static enum status find(struct gaps *g, const struct layout_item *x, int64_t *out)
{
    struct walks w = {.items = {walk_of(&g->longs, x)}, .n = 1};
    g->around.n = 0;
    for (int l = 0; l < N_LEVELS; l++)
        TRY(look_at(g, &g->levels[l], x, &w));
    *out = find_gap(g, x, &w);
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
    for (int l = 0; l < N_LEVELS; l++) {
        struct level *level = &g->levels[l];
        if (!is_short(level, x))
            continue;
        for (int i = x->first / level->width; i <= x->last / level->width; i++) {
            TRY(insert(&level->stretches[i].shorts, p));
            TRY(take(&level->stretches[i].taken, (struct span){p.offset, p.end}));
        }
        return OK;
    }
    return insert(&g->longs, p);
}

enum status gaps_place(struct gaps *g, struct layout_item *item)
{
    item->offset = 0;
    if (item->last < item->first)
        return OK; /* it never lives */
    TRY(find(g, item, &item->offset));
    return add(g, item);
}
