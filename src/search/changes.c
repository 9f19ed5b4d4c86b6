/* changes.c: what a plan might be changed in.
 *
 * Of blocks that are alike many want the same: a change is one of as many of them as the clocks
 * like best. What would be faster and has no room is paired with what gives that room back at the
 * least cost.
 */
#include <stdlib.h>
#include <string.h>

#include "search/search_internal.h"

/* What differs little is estimated well: what is slower by more is left out. */
#define LITTLE_DOUBT 0.005

/* Bytes are known about as well as this part of the room. */
enum { KNOWN_PART = 256 };

struct lister {
    struct search *s;
    const struct trial *from;
    enum care care;
    double now, most; /* seconds: of the trial, and of what is left out */
    int64_t slack;    /* bytes that there are */
    struct changes *out;
    VEC(struct change) large; /* faster, and too large */
};

/* ---- one change ------------------------------------------------------------------------------ */

static bool is_alike(const struct search *s, const struct trial *t, int a, int b)
{
    const struct place_facts *places = s->space.survey.places;
    return places[a].shape == places[b].shape && t->option[a] == t->option[b] &&
           memcmp(t->away[a], t->away[b], sizeof(t->away[a])) == 0;
}

static void apply_edit(struct search *s, const struct trial *from, const struct edit *e)
{
    const int n_places = s->space.survey.n_places;
    for (int i = 0, n = 0; i < n_places && n < e->n; i++) {
        int p = e->from_last ? n_places - 1 - i : i;
        if (!is_alike(s, from, p, e->place))
            continue;
        if (e->option >= 0)
            s->space.option[p] = e->option;
        else
            s->space.away[p][e->home] = !from->away[p][e->home];
        n++;
    }
}

struct candidate search_apply(struct search *s, const struct trial *from, const struct change *c)
{
    struct candidate changed = from->c;
    search_restore(s, from);
    for (int i = 0; i < c->n_edits; i++) {
        if (c->edits[i].place < 0)
            changed.ring_bytes = c->edits[i].ring_bytes;
        else
            apply_edit(s, from, &c->edits[i]);
    }
    return changed;
}

/* About what it adds on the device. */
static int64_t weigh(const struct lister *x, const struct edit *e)
{
    const struct space *space = &x->s->space;
    if (e->place < 0)
        return 2 * (e->ring_bytes - x->from->c.ring_bytes);
    const struct option *options = space->options[e->place].items;
    if (e->option >= 0)
        return e->n * (options[e->option].n_kept - options[x->from->option[e->place]].n_kept);
    bool comes = x->from->away[e->place][e->home];
    return (comes ? e->n : -e->n) * space->survey.places[e->place].n_bytes[e->home];
}

static double estimate(const struct lister *x, const struct change *c)
{
    const struct candidate changed = search_apply(x->s, x->from, c);
    x->s->n_ranked++;
    return space_estimate(&x->s->space, &changed);
}

static struct change change_of(const struct lister *x, const struct edit *e)
{
    struct change c = {.edits = {*e}, .n_edits = 1, .n_bytes = weigh(x, e)};
    c.estimate = estimate(x, &c);
    return c;
}

/* ---- all of a kind --------------------------------------------------------------------------- */

static enum status take(struct lister *x, const struct change *c)
{
    if (c->n_bytes < 0)
        TRY(vec_push(&x->out->small, *c));
    if (c->n_bytes > x->slack)
        return c->estimate < x->now ? vec_push(&x->large, *c) : OK;
    bool is_ring = c->edits[0].place < 0; /* no estimate says which copies happen to meet */
    return c->estimate < x->most || is_ring ? vec_push(&x->out->list, *c) : OK;
}

/* The number of places that the clocks like best: of those for which there is room, and of all. */
static enum status consider_kind(struct lister *x, struct edit e, int n_alike)
{
    struct change fits = {0}, best = {0};
    if (x->care == TRY_ALL) {
        e.n = 1;
        best = change_of(x, &e);
        if (best.n_bytes < 0)
            TRY(vec_push(&x->out->small, best));
        return best.estimate < x->most ? vec_push(&x->out->list, best) : OK;
    }
    for (e.n = 1;; e.n = MIN(2 * e.n, n_alike)) {
        for (int last = 0; last < (e.n < n_alike ? 2 : 1); last++) {
            e.from_last = last == 1;
            struct change c = change_of(x, &e);
            if (c.n_bytes <= x->slack && (!fits.n_edits || c.estimate < fits.estimate))
                fits = c;
            if (!best.n_edits || c.estimate < best.estimate)
                best = c;
        }
        if (e.n == n_alike)
            break;
    }
    if (fits.n_edits)
        TRY(take(x, &fits));
    return best.n_bytes > x->slack ? take(x, &best) : OK;
}

/* 0: an earlier place is like this one. */
static int count_alike(const struct lister *x, int place)
{
    int n = 0;
    for (int p = 0; p < x->s->space.survey.n_places; p++) {
        if (!is_alike(x->s, x->from, p, place))
            continue;
        if (p < place)
            return 0;
        n++;
    }
    return n;
}

static enum status consider_place(struct lister *x, int place)
{
    const struct space *space = &x->s->space;
    struct edit e = {.place = place};
    int n = count_alike(x, place);
    if (n == 0)
        return OK;
    for (e.option = 0; e.option < space->options[place].n; e.option++) {
        if (e.option != x->from->option[place])
            TRY(consider_kind(x, e, n));
    }
    e.option = -1;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        e.home = (enum home_class)h;
        if (space_is_open(space, e.home) && space->survey.places[place].n_bytes[h] > 0)
            TRY(consider_kind(x, e, n));
    }
    return OK;
}

static enum status consider_ring(struct lister *x, int64_t n_bytes, bool is_near)
{
    const struct edit e = {.place = -1, .ring_bytes = n_bytes};
    if (n_bytes == x->from->c.ring_bytes)
        return OK;
    const struct change c = change_of(x, &e);
    if (x->care == TRY_LIKELY && !is_near)
        return take(x, &c);
    if (c.n_bytes < 0)
        TRY(vec_push(&x->out->small, c));
    if (x->care == TRY_ALL)
        TRY(vec_push(&x->out->list, c));
    return OK;
}

/* Parts of the room; and what is near, for the room it makes or where all is tried. */
static enum status consider_rings(struct lister *x)
{
    static const int parts[] = {4, 8, 16, 32},
                     sixteenths[] = {12, 13, 14, 15, 17, 18, 19, 20, 22, 24};
    const int64_t room = x->s->space.room[TIER_DEVICE], now = x->from->c.ring_bytes;
    if (!x->s->w->device->ops->queue)
        return OK;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        TRY(consider_ring(x, room / parts[i], false));
    for (size_t i = 0; i < ARRAY_LEN(sixteenths); i++)
        TRY(consider_ring(x, now / 16 * sixteenths[i], true));
    return OK;
}

/* ---- several at a time ----------------------------------------------------------------------- */

/* Do they change different places? */
static bool are_apart(const struct search *s, const struct trial *from, const struct change *c,
                      const struct edit *e)
{
    for (int i = 0; i < c->n_edits; i++) {
        int place = c->edits[i].place;
        bool is_same =
            place < 0 || e->place < 0 ? place == e->place : is_alike(s, from, place, e->place);
        if (is_same)
            return false;
    }
    return true;
}

bool search_add_room(const struct search *s, const struct trial *from, const struct changes *x,
                     int64_t n_bytes, struct change *c)
{
    const struct change *with = NULL;
    for (size_t i = 0; i < x->small.n && c->n_edits < MAX_EDITS; i++) {
        const struct change *m = &x->small.items[i];
        if (-m->n_bytes >= n_bytes && are_apart(s, from, c, &m->edits[0]) &&
            (!with || m->estimate < with->estimate))
            with = m;
    }
    if (!with)
        return false;
    c->edits[c->n_edits++] = with->edits[0];
    c->n_bytes += with->n_bytes;
    return true;
}

static enum status pair_up(struct lister *x, const struct change *large)
{
    struct change c = *large;
    if (!search_add_room(x->s, x->from, x->out, large->n_bytes - x->slack, &c))
        return OK;
    c.estimate = estimate(x, &c);
    return c.estimate < x->now ? vec_push(&x->out->list, c) : OK;
}

static int by_estimate(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

enum status search_list_changes(struct search *s, const struct trial *from, enum care care,
                                struct changes *out)
{
    struct lister x = {.s = s, .from = from, .care = care, .out = out};
    const int64_t room = s->space.room[TIER_DEVICE];
    enum status status = OK;
    x.slack = from->slack + room / KNOWN_PART;
    out->now = x.now = estimate(&x, &(struct change){0});
    x.most = (1 + (care == TRY_ALL ? DOUBT : LITTLE_DOUBT)) * x.now;
    TRY_GOTO(consider_rings(&x), out);
    for (int p = 0; p < s->space.survey.n_places; p++)
        TRY_GOTO(consider_place(&x, p), out);
    for (size_t i = 0; i < x.large.n; i++)
        TRY_GOTO(pair_up(&x, &x.large.items[i]), out);
    if (out->list.n > 0)
        qsort(out->list.items, out->list.n, sizeof(*out->list.items), by_estimate);
out:
    vec_release(&x.large);
    return status;
}
