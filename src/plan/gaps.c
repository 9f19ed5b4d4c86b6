#include "plan/gaps.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/vec.h"

enum {
    N_LEVELS = 4,
    FAN_BITS = 3,
    FAN = 1 << FAN_BITS, /* stretches that make one of the next level */
    N_LOWEST = 1 << FAN_BITS * (N_LEVELS - 1),
    MOST_WHOLE = 2 * (FAN - 1) * N_LEVELS,
};

/* A placed item. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

struct span {
    int64_t offset, end;
};

/* Both by offset; spans do not touch each other. */
struct placed_list {
    struct placed *items;
    size_t n, capacity;
};

struct span_list {
    struct span *items;
    size_t n, capacity;
};

struct stretch {
    struct span_list full;  /* by what lives through all of it, but not of the one it is part of */
    struct span_list taken; /* by what lives in it at some time, but for what is full around it */
};

struct gaps {
    int32_t width; /* of a stretch of the lowest level */
    struct stretch *levels[N_LEVELS];
    struct placed_list partly[N_LOWEST];
    int64_t work;
};

static int count_stretches(int level)
{
    return N_LOWEST >> FAN_BITS * level;
}

enum status gaps_new(struct gaps **out, int32_t last_time)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    (*out)->width = last_time / N_LOWEST + 1;
    for (int l = 0; l < N_LEVELS; l++)
        TRY(mem_try_array(&(*out)->levels[l], (size_t)count_stretches(l), sizeof(struct stretch)));
    return OK;
}

void gaps_free(struct gaps *g)
{
    for (int l = 0; g && l < N_LEVELS; l++) {
        for (int i = 0; g->levels[l] && i < count_stretches(l); i++) {
            vec_release(&g->levels[l][i].full);
            vec_release(&g->levels[l][i].taken);
        }
        mem_free(g->levels[l]);
    }
    for (int i = 0; g && i < N_LOWEST; i++)
        vec_release(&g->partly[i]);
    mem_free(g);
}

void gaps_clear(struct gaps *g)
{
    for (int l = 0; l < N_LEVELS; l++) {
        for (int i = 0; i < count_stretches(l); i++)
            g->levels[l][i].full.n = g->levels[l][i].taken.n = 0;
    }
    for (int i = 0; i < N_LOWEST; i++)
        g->partly[i].n = 0;
    g->work = 0;
}

int64_t gaps_work(const struct gaps *g)
{
    return g->work;
}

/* ---- where an item lives --------------------------------------------------------------------- */

struct life {
    struct stretch *whole[MOST_WHOLE]; /* it lives through all of these */
    int n_whole;
    struct stretch *around[2 * N_LEVELS]; /* those that these and the ones below are parts of */
    int n_around;
    struct placed_list *partly[2]; /* of the lowest level */
    int n_partly;
};

/* The stretches of a level from `first` to `last` that are no whole one of the next. */
static void add_whole(struct life *x, struct stretch *level, int *first, int *last, bool is_top)
{
    while (*first <= *last && (is_top || *first % FAN != 0))
        x->whole[x->n_whole++] = &level[(*first)++];
    while (*first <= *last && *last % FAN != FAN - 1)
        x->whole[x->n_whole++] = &level[(*last)--];
}

static void find_life(struct gaps *g, const struct layout_item *item, struct life *x)
{
    const int begin = item->first / g->width, end = item->last / g->width;
    int first = begin + (item->first % g->width != 0);
    int last = end - (item->last % g->width != g->width - 1);
    x->n_whole = x->n_around = x->n_partly = 0;
    if (first > begin || last < begin)
        x->partly[x->n_partly++] = &g->partly[begin];
    if (end > begin && last < end)
        x->partly[x->n_partly++] = &g->partly[end];
    for (int l = 0; l < N_LEVELS; l++) {
        int left = begin >> FAN_BITS * l, right = end >> FAN_BITS * l;
        x->around[x->n_around++] = &g->levels[l][left];
        if (right > left)
            x->around[x->n_around++] = &g->levels[l][right];
        if (first > last)
            continue;
        add_whole(x, g->levels[l], &first, &last, l == N_LEVELS - 1);
        if (first <= last) {
            first >>= FAN_BITS;
            last >>= FAN_BITS;
        }
    }
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Where a list is looked at: everything before ends below the address that is tried. */
struct walk {
    const struct span *at, *end;
};

struct partial_walk {
    const struct placed *at, *end;
};

struct walks {
    struct walk spans[MOST_WHOLE + 2 * N_LEVELS];
    int n_spans;
    struct partial_walk partly[2];
    int n_partly;
};

static void add_walk(struct walks *w, const struct span_list *list)
{
    if (list->n > 0)
        w->spans[w->n_spans++] = (struct walk){list->items, list->items + list->n};
}

static void begin_walks(const struct life *x, struct walks *w)
{
    w->n_spans = w->n_partly = 0;
    for (int i = 0; i < x->n_around; i++)
        add_walk(w, &x->around[i]->full);
    for (int i = 0; i < x->n_whole; i++)
        add_walk(w, &x->whole[i]->taken);
    for (int i = 0; i < x->n_partly; i++) {
        const struct placed_list *list = x->partly[i];
        if (list->n > 0)
            w->partly[w->n_partly++] = (struct partial_walk){list->items, list->items + list->n};
    }
}

/* Past what is in the way at that address, which moves up. */
static int64_t pass_spans(struct walk *w, int64_t n_bytes, int64_t at)
{
    for (; w->at < w->end && w->at->offset < at + n_bytes; w->at++)
        at = MAX(at, w->at->end);
    return at;
}

static int64_t pass_partly(struct partial_walk *w, const struct layout_item *x, int64_t at)
{
    for (; w->at < w->end && w->at->offset < at + x->n_bytes; w->at++) {
        bool together = x->first <= w->at->last && w->at->first <= x->last;
        if (together)
            at = MAX(at, w->at->end);
    }
    return at;
}

/* The lowest address that no walk moves up any more. */
static int64_t find_gap(struct gaps *g, const struct layout_item *x, struct walks *w)
{
    int64_t at = -1;
    for (int64_t next = 0; next > at;) {
        at = next;
        for (int i = 0; i < w->n_spans; i++)
            next = pass_spans(&w->spans[i], x->n_bytes, next);
        for (int i = 0; i < w->n_partly; i++) {
            const struct placed *before = w->partly[i].at;
            next = pass_partly(&w->partly[i], x, next);
            g->work += w->partly[i].at - before;
        }
        g->work += w->n_spans;
    }
    return at;
}

/* ---- placing --------------------------------------------------------------------------------- */

static enum status insert(struct placed_list *list, struct placed p)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->items[middle].offset <= p.offset)
            low = middle + 1;
        else
            high = middle;
    }
    TRY(vec_push(list, p));
    memmove(list->items + low + 1, list->items + low, (list->n - 1 - low) * sizeof(p));
    list->items[low] = p;
    return OK;
}

/* The first that does not end below the address. */
static size_t find_span(const struct span_list *list, int64_t offset)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->items[middle].end < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Joins what the span touches or overlaps. */
static enum status take(struct span_list *list, struct span s)
{
    size_t first = find_span(list, s.offset), end;
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

static enum status add(const struct life *x, const struct layout_item *item)
{
    const struct placed p = {item->offset, item->offset + item->n_bytes, item->first, item->last};
    const struct span span = {p.offset, p.end};
    for (int i = 0; i < x->n_partly; i++)
        TRY(insert(x->partly[i], p));
    for (int i = 0; i < x->n_around; i++)
        TRY(take(&x->around[i]->taken, span));
    for (int i = 0; i < x->n_whole; i++) {
        TRY(take(&x->whole[i]->full, span));
        TRY(take(&x->whole[i]->taken, span));
    }
    return OK;
}

enum status gaps_place(struct gaps *g, struct layout_item *item)
{
    struct life life;
    struct walks walks;
    item->offset = 0;
    if (item->last < item->first)
        return OK; /* it never lives */
    find_life(g, item, &life);
    begin_walks(&life, &walks);
    item->offset = find_gap(g, item, &walks);
    return add(&life, item);
}
