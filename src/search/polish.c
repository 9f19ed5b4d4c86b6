/* polish.c: from a plan to one that differs in places that are alike, while that helps. */
#include <math.h>
#include <stdlib.h>

#include "search/search_internal.h"

enum {
    MOST_CLIMBED = 12, /* changes by estimates alone, */
    N_CLIMBS = 3,      /* and so many times, while what comes of them does not fit */
};

/* Plans are unlike when homes of so many blocks differ, a part of them, or one has none away. */
enum { UNLIKE_PART = 4 };

static bool is_unlike(const struct search *s, const struct candidate *a, const struct candidate *b)
{
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        int differ = abs(a->homes[h].n_blocks - b->homes[h].n_blocks);
        bool is_part = a->homes[h].n_blocks > 0 && b->homes[h].n_blocks > 0;
        if (differ > 0 && (!is_part || UNLIKE_PART * differ > s->space.n_blocks))
            return true;
    }
    return false;
}

/* *t, which has arrays of its own, becomes it where that is faster. */
static enum status try_change(struct search *s, const struct change *c, struct trial *t,
                              int64_t *left, bool *improved)
{
    const struct candidate changed = search_apply(s, t, c);
    double seconds = HUGE_VAL;
    int64_t slack = 0;
    if (search_is_new(s, &changed))
        TRY(search_try(s, &changed, &seconds, &slack));
    *left = slack;
    *improved = seconds < (1 - IMPROVEMENT) * t->seconds;
    if (!*improved)
        return OK;
    t->c = changed;
    t->seconds = seconds;
    t->slack = slack;
    search_save(s, t);
    return OK;
}

/* What would be faster, and takes more than there is, once more with what makes room for it. */
static enum status try_or_make_room(struct search *s, const struct changes *x, struct change c,
                                    struct trial *t, bool *improved)
{
    int64_t left;
    TRY(try_change(s, &c, t, &left, improved));
    if (left >= 0 || c.estimate >= x->now || s->n_emitted >= s->most_polished ||
        !search_add_room(s, t, x, -left, &c))
        return OK;
    return try_change(s, &c, t, &left, improved);
}

static enum status polish_once(struct search *s, enum care care, struct trial *t, bool *improved)
{
    struct changes x = {0};
    *improved = false;
    enum status status = search_list_changes(s, t, care, &x);
    for (size_t i = 0; status == OK && i < x.list.n && !*improved; i++) {
        if (!search_goes_on(s))
            break;
        foresight_at(s, &(struct to_try){.from = t, .changes = x.list.items, .n = x.list.n}, i);
        status = try_or_make_room(s, &x, x.list.items[i], t, improved);
    }
    foresight_end(s->foresight);
    vec_release(&x.list);
    vec_release(&x.small);
    return status;
}

struct trial *search_find_unlike(struct search *s, const struct candidate *known, int n)
{
    for (int i = 0; i < s->n_best; i++) {
        bool is_new = true;
        for (int k = 0; k < n; k++)
            is_new &= is_unlike(s, &s->best[i].c, &known[k]);
        if (is_new)
            return &s->best[i];
    }
    return NULL;
}

/* ---- by estimates alone ---------------------------------------------------------------------- */

/* *t becomes what the clocks like best of all that is near it, and nothing is emitted: a change at
 * a time, with about the bytes that there are. */
static enum status climb(struct search *s, struct trial *t)
{
    bool improved = true;
    for (int i = 0; i < MOST_CLIMBED && improved; i++) {
        struct changes x = {0};
        enum status status = search_list_changes(s, t, TRY_LIKELY, &x);
        improved =
            status == OK && x.list.n > 0 && x.list.items[0].estimate < (1 - IMPROVEMENT) * x.now;
        if (improved) {
            t->c = search_apply(s, t, &x.list.items[0]);
            t->slack -= x.list.items[0].n_bytes;
            search_save(s, t);
        }
        vec_release(&x.list);
        vec_release(&x.small);
        TRY(status);
    }
    return OK;
}

static void copy_trial(struct search *s, const struct trial *from, struct trial *to)
{
    *to = (struct trial){.c = from->c,
                         .seconds = from->seconds,
                         .slack = from->slack,
                         .option = to->option,
                         .away = to->away};
    search_restore(s, from);
    search_save(s, to);
}

/* Where it takes too much, once more with that much less. */
static enum status try_climbed(struct search *s, const struct trial *from, struct trial *t)
{
    struct trial start = {0};
    int64_t over = 0;
    TRY(search_make_trial(s, &start));
    copy_trial(s, from, &start); /* what is remembered moves */
    for (int i = 0; i < N_CLIMBS && over >= 0; i++) {
        double seconds = HUGE_VAL;
        int64_t slack = 0;
        copy_trial(s, &start, t);
        t->slack -= over;
        TRY(climb(s, t));
        search_restore(s, t);
        if (!search_is_new(s, &t->c))
            return OK;
        TRY(search_try(s, &t->c, &seconds, &slack));
        if (slack >= 0)
            return OK;
        over -= slack;
    }
    return OK;
}

static enum status polish(struct search *s, const struct trial *from, enum care care,
                          struct trial *t)
{
    copy_trial(s, from, t);
    for (bool improved = true; improved && search_goes_on(s);)
        TRY(polish_once(s, care, t, &improved));
    return OK;
}

enum status search_climb(struct search *s)
{
    struct candidate known[N_UNLIKE];
    struct trial t = {0};
    TRY(search_make_trial(s, &t));
    for (int n = 0; n < N_UNLIKE && s->n_emitted < s->most_polished; n++) {
        struct trial *from = search_find_unlike(s, known, n);
        if (!from)
            break;
        known[n] = from->c;
        if (from->is_climbed)
            continue;
        from->is_climbed = true;
        TRY(try_climbed(s, from, &t));
    }
    return OK;
}

enum status search_polish(struct search *s)
{
    struct candidate known[N_UNLIKE];
    struct trial t = {0};
    TRY(search_climb(s));
    TRY(search_make_trial(s, &t));
    for (int n = 0; n < N_UNLIKE && search_goes_on(s); n++) {
        const struct trial *from = search_find_unlike(s, known, n);
        if (!from)
            break;
        known[n] = from->c;
        TRY(polish(s, from, TRY_LIKELY, &t));
    }
    return polish(s, &s->best[0], TRY_ALL, &t);
}
