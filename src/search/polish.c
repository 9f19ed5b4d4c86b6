/* polish.c: from the best plan to one that differs in a single place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/search_internal.h"

/* A change of one place of the best: another option, or a class whose home is elsewhere; or of the
 * ring, alone or with it. */
struct change {
    int place, option; /* option -1: the class; place -1: the ring alone */
    enum home_class home;
    int64_t ring_bytes;
    int64_t n_bytes; /* about what it adds on the device */
    double estimate;
};

static void set_place(struct search *s, int place, int option, enum home_class home)
{
    if (option >= 0)
        s->space.option[place] = option;
    else
        s->space.away[place][home] = !s->space.away[place][home];
}

static void apply_change(struct search *s, const struct change *c)
{
    if (c->place >= 0)
        set_place(s, c->place, c->option, c->home);
}

static int by_gain(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

/* Is it the first place of its kind with this option? Others are alike. */
static bool is_first_alike(const struct search *s, int place)
{
    const struct survey *v = &s->space.survey;
    for (int p = 0; p < place; p++) {
        if (v->places[p].shape == v->places[place].shape &&
            s->space.option[p] == s->space.option[place] &&
            memcmp(s->space.away[p], s->space.away[place], sizeof(s->space.away[p])) == 0)
            return false;
    }
    return true;
}

struct changes {
    VEC(struct change) list;
    const struct trial *from;
    double most; /* seconds: what is estimated at more is left out */
};

static enum status consider(struct search *s, struct changes *x, struct change c)
{
    const struct trial *from = x->from;
    struct candidate changed = from->c;
    const struct option *options = c.place < 0 ? NULL : s->space.options[c.place].items;
    changed.ring_bytes = c.ring_bytes;
    c.n_bytes = 2 * (c.ring_bytes - from->c.ring_bytes);
    if (options && c.option >= 0)
        c.n_bytes += options[c.option].n_kept - options[from->option[c.place]].n_kept;
    else if (options)
        c.n_bytes += s->space.survey.places[c.place].n_bytes[c.home] *
                     (from->away[c.place][c.home] ? 1 : -1);
    apply_change(s, &c);
    c.estimate = space_estimate(&s->space, &changed);
    search_restore(s, from);
    s->n_ranked++;
    return c.estimate < x->most || c.place < 0 ? vec_push(&x->list, c) : OK;
}

static enum status consider_place(struct search *s, struct changes *x, int place, int64_t ring)
{
    struct change c = {.place = place, .ring_bytes = ring};
    if (!is_first_alike(s, place))
        return OK;
    for (c.option = 0; c.option < s->space.options[place].n; c.option++) {
        if (c.option != x->from->option[place])
            TRY(consider(s, x, c));
    }
    c.option = -1;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        c.home = (enum home_class)h;
        if (space_is_open(&s->space, c.home) && s->space.survey.places[place].n_bytes[h] > 0)
            TRY(consider(s, x, c));
    }
    return OK;
}

/* Of more changes than may be emitted, those whose bytes there seem to be. */
static void leave_out_large(const struct search *s, struct changes *x)
{
    size_t n = 0;
    int64_t room = s->space.room[TIER_DEVICE];
    int64_t slack = room - x->from->n_bytes[TIER_DEVICE] + room / 64;
    if (x->list.n <= (size_t)(s->most_polished - s->n_emitted))
        return;
    for (size_t i = 0; i < x->list.n; i++) {
        if (x->list.items[i].n_bytes <= slack)
            x->list.items[n++] = x->list.items[i];
    }
    x->list.n = n;
}

/* Changes that the clocks do not dislike, best first. */
static enum status list_changes(struct search *s, struct changes *x)
{
    static const int64_t parts[] = {4, 8, 16, 32};
    int64_t now = x->from->c.ring_bytes;
    x->most = (1 + DOUBT) * space_estimate(&s->space, &x->from->c);
    for (size_t i = 0; i <= ARRAY_LEN(parts); i++) {
        int64_t ring = i == 0 ? now : s->space.room[TIER_DEVICE] / parts[i - 1];
        if (i > 0 && (ring == now || !s->w->device->ops->queue))
            continue;
        if (i > 0)
            TRY(consider(s, x, (struct change){.place = -1, .ring_bytes = ring}));
        for (int p = 0; p < s->space.survey.n_places; p++)
            TRY(consider_place(s, x, p, ring));
    }
    leave_out_large(s, x);
    qsort(x->list.items, x->list.n, sizeof(*x->list.items), by_gain);
    return OK;
}

static enum status try_change(struct search *s, const struct trial *from, const struct change *c,
                              bool *improved)
{
    struct candidate changed = from->c;
    double seconds = HUGE_VAL;
    int64_t slack;
    changed.ring_bytes = c->ring_bytes;
    search_restore(s, from);
    apply_change(s, c);
    if (search_is_new(s, &changed))
        TRY(search_try(s, &changed, &seconds, &slack));
    *improved = seconds < (1 - IMPROVEMENT) * from->seconds;
    return OK;
}

/* ---- what has helped, once more -------------------------------------------------------------- */

static void note_repeat(struct search *s, const struct trial *from, const struct change *c)
{
    s->repeat = (struct repeat){0};
    if (c->place < 0)
        return;
    s->repeat = (struct repeat){.n = 1,
                                .shape = s->space.survey.places[c->place].shape,
                                .from = from->option[c->place],
                                .option = c->option,
                                .home = c->home};
    memcpy(s->repeat.away, from->away[c->place], sizeof(s->repeat.away));
}

static bool is_as_it_was(const struct search *s, const struct repeat *r, int place)
{
    return s->space.survey.places[place].shape == r->shape && s->space.option[place] == r->from &&
           memcmp(s->space.away[place], r->away, sizeof(r->away)) == 0;
}

/* In twice as many places as before: of many blocks that are alike, most want the same. */
static enum status try_repeat(struct search *s, const struct trial *from, bool *improved)
{
    struct repeat r = s->repeat;
    double seconds = HUGE_VAL;
    int64_t slack;
    int n = 0;
    s->repeat = (struct repeat){0};
    for (int p = 0; p < s->space.survey.n_places && n < 2 * r.n; p++) {
        if (!is_as_it_was(s, &r, p))
            continue;
        set_place(s, p, r.option, r.home);
        n++;
    }
    if (n > 0 && search_is_new(s, &from->c))
        TRY(search_try(s, &from->c, &seconds, &slack));
    *improved = seconds < (1 - IMPROVEMENT) * from->seconds;
    if (*improved) {
        r.n = n;
        s->repeat = r;
    }
    return OK;
}

static enum status try_changes(struct search *s, const struct trial *from, bool *improved)
{
    struct changes x = {.from = from};
    enum status status;
    TRY_GOTO(list_changes(s, &x), out);
    for (size_t i = 0; i < x.list.n && s->n_emitted < s->most_polished && !*improved; i++) {
        TRY_GOTO(try_change(s, from, &x.list.items[i], improved), out);
        if (*improved)
            note_repeat(s, from, &x.list.items[i]);
    }
out:
    vec_release(&x.list);
    return status;
}

enum status search_polish(struct search *s, bool *improved)
{
    struct trial from = s->best[0];
    TRY(search_make_trial(s, &from));
    search_restore(s, &s->best[0]);
    search_save(s, &from);
    *improved = false;
    if (s->repeat.n > 0)
        TRY(try_repeat(s, &from, improved));
    search_restore(s, &from);
    return *improved ? OK : try_changes(s, &from, improved);
}
