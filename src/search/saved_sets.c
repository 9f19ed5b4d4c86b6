#include "search/saved_sets.h"

#include <stdlib.h>
#include <string.h>

/* Prices at which a set has to be the best of its size to be kept, in units of what a byte takes on
 * a link that nothing else uses: from nearly idle to more than busy. */
static const double prices[] = {0.02, 0.1, 0.2, 0.3, 0.5, 1.0, 4.0};
static const double least_price = 1e-9; /* its inverse: no byte is worth moving */

enum {
    MAX_DROPPABLE = 12, /* units: 4096 sets */
    MAX_MOVABLE = 7,
};

struct finder {
    const struct place_facts *place;
    const struct saved_bounds *bounds;
    double price;
    VEC(struct option) found;
};

/* ---- one set --------------------------------------------------------------------------------- */

/* What is kept for the backward pass when `dropped` is made again: what that reads, what nodes that
 * run again read. */
static uint32_t saved_with(const struct place_facts *p, uint32_t dropped, double *seconds)
{
    uint32_t needed = 0;
    *seconds = 0;
    for (int u = p->n_units; u-- > 0;) {
        const struct unit *x = &p->units[u];
        if (x->wanted)
            needed |= 1u << u;
        if ((needed & dropped) >> u & 1) {
            *seconds += x->seconds;
            needed |= x->reads;
        }
    }
    return needed & ~dropped;
}

static struct option weigh(const struct place_facts *p, uint32_t dropped, uint32_t moved)
{
    struct option o = {.dropped = dropped};
    uint32_t saved = saved_with(p, dropped, &o.seconds);
    o.moved = moved & saved;
    for (int u = 0; u < p->n_units; u++) {
        const struct unit *x = &p->units[u];
        bool moves = o.moved >> u & 1;
        if (saved >> u & 1)
            o.n_kept += moves ? x->n_bytes - x->n_movable : x->n_bytes;
        o.n_moved += moves ? x->n_movable : 0;
        o.largest_moved = moves ? MAX(o.largest_moved, x->largest) : o.largest_moved;
    }
    return o;
}

/* ---- all sets -------------------------------------------------------------------------------- */

/* The heaviest units that satisfy a question, `most` of them. */
static uint32_t heaviest(const struct place_facts *p, uint32_t among, int most)
{
    uint32_t chosen = 0;
    for (int n = 0; n < most; n++) {
        int best = -1;
        for (int u = 0; u < p->n_units; u++) {
            bool open = (among & ~chosen) >> u & 1;
            if (open && (best < 0 || p->units[u].n_bytes > p->units[best].n_bytes))
                best = u;
        }
        if (best >= 0)
            chosen |= 1u << best;
    }
    return chosen;
}

static uint32_t droppable(const struct place_facts *p)
{
    uint32_t set = 0;
    for (int u = 0; u < p->n_units; u++)
        set |= (uint32_t)p->units[u].may_drop << u;
    return set;
}

static uint32_t configured(const struct place_facts *p)
{
    uint32_t set = 0;
    for (int u = 0; u < p->n_units; u++)
        set |= (uint32_t)(p->units[u].may_drop && p->units[u].drop_by_default) << u;
    return set;
}

static uint32_t movable(const struct place_facts *p)
{
    uint32_t set = 0;
    for (int u = 0; u < p->n_units; u++)
        set |= (uint32_t)(p->units[u].n_movable > 0) << u;
    return set;
}

/* Nothing gained: an option that keeps no more, takes no longer and moves no more is there. */
static bool beats(const struct option *a, const struct option *b)
{
    return a->n_kept <= b->n_kept && a->seconds <= b->seconds && a->n_moved <= b->n_moved;
}

static enum status consider(struct finder *f, const struct option *o)
{
    size_t n = 0;
    for (size_t i = 0; i < f->found.n; i++) {
        if (beats(&f->found.items[i], o))
            return OK;
    }
    for (size_t i = 0; i < f->found.n; i++) {
        if (!beats(o, &f->found.items[i]))
            f->found.items[n++] = f->found.items[i];
    }
    f->found.n = n;
    return vec_push(&f->found, *o);
}

/* Every set of moves for one set of drops: with equal bytes any is as good as another. */
static enum status consider_moves(struct finder *f, uint32_t dropped)
{
    double seconds;
    uint32_t saved = saved_with(f->place, dropped, &seconds);
    uint32_t may = f->bounds->fixed_moves && !f->bounds->all_move ? 0 : saved & movable(f->place);
    uint32_t chosen = heaviest(f->place, may, MAX_MOVABLE);
    uint32_t moved = f->bounds->all_move ? chosen : 0;
    do {
        struct option o = weigh(f->place, dropped, moved | (moved == chosen ? may : 0));
        TRY(consider(f, &o));
        moved = (moved - chosen) & chosen; /* the next of the sets within `chosen` */
    } while (moved != 0 && !f->bounds->all_move);
    return OK;
}

/* Without moves first: where two sets of drops cost the same, the one that keeps less. */
static enum status consider_drops(struct finder *f)
{
    const struct place_facts *p = f->place;
    uint32_t all = droppable(p), free = heaviest(p, all, MAX_DROPPABLE), drops = 0;
    struct finder fronts = {.place = p, .bounds = f->bounds};
    enum status status = OK;
    if (f->bounds->fixed_drops)
        return consider_moves(f, configured(p));
    do {
        /* What is too small to be looked at goes with the set that drops all. */
        struct option o = weigh(p, drops == free ? all : drops, 0);
        TRY_GOTO(consider(&fronts, &o), out);
        drops = (drops - free) & free;
    } while (drops != 0);
    for (size_t i = 0; i < fronts.found.n; i++)
        TRY_GOTO(consider_moves(f, fronts.found.items[i].dropped), out);
out:
    vec_release(&fronts.found);
    return status;
}

/* ---- those worth having ---------------------------------------------------------------------- */

static int most_kept_first(const void *a, const void *b)
{
    const struct option *x = a, *y = b;
    if (x->n_kept != y->n_kept)
        return x->n_kept > y->n_kept ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static double cost(const struct option *o, double price)
{
    return o->seconds + price * (double)o->n_moved;
}

/* Marks the lower hull of (bytes kept, cost): from the cheapest on, each time the set that buys
 * bytes at the least cost. */
static void mark_hull(const struct finder *f, double price, bool *marked)
{
    const struct option *o = f->found.items;
    size_t at = 0;
    for (size_t i = 1; i < f->found.n; i++) {
        if (cost(&o[i], price) <= cost(&o[at], price))
            at = i;
    }
    for (size_t best = at; marked[at] = true, at + 1 < f->found.n; at = best) {
        double least = -1;
        for (size_t i = at + 1; i < f->found.n; i++) {
            double saved = (double)(o[at].n_kept - o[i].n_kept);
            double slope = (cost(&o[i], price) - cost(&o[at], price)) / MAX(saved, 1.0);
            if (saved > 0 && (least < 0 || slope <= least)) {
                least = slope;
                best = i;
            }
        }
        if (best == at)
            return;
    }
}

/* Is it a set of drops that is worth having without the link, with all moved that is left? */
static bool is_worth_moving(const struct finder *f, const bool *without_link, size_t i)
{
    const struct option *o = f->found.items;
    double seconds;
    uint32_t all = saved_with(f->place, o[i].dropped, &seconds) & movable(f->place);
    for (size_t k = 0; k < f->found.n && o[i].moved == all; k++) {
        if (without_link[k] && o[k].dropped == o[i].dropped)
            return true;
    }
    return false;
}

static void mark_best(const struct finder *f, bool *marked, bool *without_link)
{
    mark_hull(f, f->price / least_price, without_link);
    for (size_t i = 0; i < ARRAY_LEN(prices); i++)
        mark_hull(f, prices[i] * f->price, marked);
    for (size_t i = 0; i < f->found.n; i++)
        marked[i] |= without_link[i] || is_worth_moving(f, without_link, i);
}

/* Of too many, some from the whole range of bytes. */
static void thin_out(struct finder *f, const bool *marked)
{
    size_t n_marked = 0, n = 0, most = MAX_OPTIONS - 1;
    for (size_t i = 0; i < f->found.n; i++) {
        if (marked[i])
            f->found.items[n_marked++] = f->found.items[i];
    }
    for (size_t i = 0; i < n_marked; i++) {
        size_t left = n_marked - 1 - i;
        if (n_marked <= most || (i * most) / n_marked != ((i + 1) * most) / n_marked || left == 0)
            f->found.items[n++] = f->found.items[i];
    }
    f->found.n = MIN(n, most);
}

static enum status keep_best(struct finder *f)
{
    bool *marked;
    qsort(f->found.items, f->found.n, sizeof(*f->found.items), most_kept_first);
    TRY(mem_try_array(&marked, 2 * f->found.n + 1, sizeof(*marked)));
    if (f->found.n > MAX_OPTIONS / 2) {
        mark_best(f, marked, marked + f->found.n);
        thin_out(f, marked);
    }
    mem_free(marked);
    return OK;
}

/* ---- for plans ------------------------------------------------------------------------------- */

/* The units' names, separated by commas. */
static const char *name_units(const struct place_facts *p, uint32_t units, struct pool *pool)
{
    struct str text = {0};
    for (int u = 0; u < p->n_units; u++) {
        if (units >> u & 1)
            str_addf(&text, "%s%s", text.n ? ", " : "", p->units[u].name);
    }
    const char *copy = pool_strdup(pool, str_text(&text));
    str_release(&text);
    return copy;
}

static enum status make_set(const struct place_facts *p, struct option *o, struct pool *pool)
{
    enum treatment *treat;
    uint32_t again = 0;
    TRY(pool_try(pool, &treat, (size_t)(p->n_nodes + 1) * sizeof(*treat)));
    for (int u = 0; u < p->n_units; u++) {
        if (o->dropped >> u & 1)
            treat[p->units[u].index] = RECOMPUTE;
        else if (o->moved >> u & 1)
            treat[p->units[u].index] = MOVE;
    }
    for (int u = p->n_units; u-- > 0;) {
        bool made = (o->dropped >> u & 1) && p->units[u].wanted;
        for (int k = u + 1; k < p->n_units; k++)
            made |= (again >> k & 1) && (o->dropped & p->units[k].reads) >> u & 1;
        again |= (uint32_t)made << u;
    }
    o->set = (struct saved_set){treat, p->n_nodes, name_units(p, again, pool),
                                name_units(p, o->moved, pool)};
    return pool_status(pool);
}

static enum status take_options(const struct finder *f, struct pool *pool, struct options *out)
{
    const struct place_facts *p = f->place;
    struct option *items;
    TRY(pool_try(pool, &items, (f->found.n + 1) * sizeof(*items)));
    items[0] = weigh(p, configured(p), f->bounds->all_move ? movable(p) : 0);
    *out = (struct options){items, 1};
    for (size_t i = 0; i < f->found.n; i++) {
        const struct option *o = &f->found.items[i];
        if (o->dropped != items[0].dropped || o->moved != items[0].moved)
            items[out->n++] = *o;
    }
    for (int k = 0; k < out->n; k++)
        TRY(make_set(p, &items[k], pool));
    return OK;
}

static enum status find_for(struct survey *s, int place, const struct saved_bounds *bounds,
                            double price, struct options *out)
{
    struct finder f = {.place = &s->places[place], .bounds = bounds, .price = price};
    enum status status;
    TRY_GOTO(consider_drops(&f), out);
    TRY_GOTO(keep_best(&f), out);
    status = take_options(&f, &s->pool, out);
out:
    vec_release(&f.found);
    return status;
}

enum status saved_sets_find(struct options **out, struct survey *s,
                            const struct saved_bounds *bounds, double price)
{
    TRY(pool_try(&s->pool, out, (size_t)s->n_places * sizeof(**out)));
    for (int p = 0; p < s->n_places; p++) {
        int like = 0;
        while (like < p && s->places[like].shape != s->places[p].shape)
            like++;
        if (like < p)
            (*out)[p] = (*out)[like];
        else
            TRY(find_for(s, p, bounds, price, &(*out)[p]));
    }
    return OK;
}
