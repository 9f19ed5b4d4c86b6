/* trials.c: candidates as programs: their bytes, their seconds, and the best of them. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "search/search_internal.h"

/* Emissions of one candidate, each with what the last one taught. */
enum { N_CORRECTIONS = 6 };

/* ---- what is remembered ---------------------------------------------------------------------- */

enum status search_make_trial(struct search *s, struct trial *t)
{
    struct pool *pool = &s->space.survey.pool;
    size_t n = (size_t)s->space.survey.n_places;
    TRY(pool_try(pool, &t->option, n * sizeof(*t->option)));
    return pool_try(pool, &t->away, n * sizeof(*t->away));
}

enum status search_make_room(struct search *s)
{
    size_t n = (size_t)s->space.survey.n_places;
    TRY(pool_try(&s->space.survey.pool, &s->places, n * sizeof(*s->places)));
    for (int i = 0; i < N_BEST; i++)
        TRY(search_make_trial(s, &s->best[i]));
    return OK;
}

void search_save(const struct search *s, struct trial *t)
{
    size_t n = (size_t)s->space.survey.n_places;
    memcpy(t->option, s->space.option, n * sizeof(*t->option));
    memcpy(t->away, s->space.away, n * sizeof(*t->away));
}

void search_restore(struct search *s, const struct trial *t)
{
    size_t n = (size_t)s->space.survey.n_places;
    memcpy(s->space.option, t->option, n * sizeof(*t->option));
    memcpy(s->space.away, t->away, n * sizeof(*t->away));
}

static bool is_same(const struct trial *a, const struct trial *b)
{
    return a->seconds == b->seconds && a->n_bytes[TIER_DEVICE] == b->n_bytes[TIER_DEVICE];
}

static void keep(struct search *s, const struct trial *t)
{
    int at = MIN(s->n_best, N_BEST - 1);
    for (int i = 0; i < s->n_best; i++) {
        if (is_same(&s->best[i], t))
            return;
    }
    if (s->n_best == N_BEST && t->seconds >= s->best[at].seconds)
        return;
    struct trial new = s->best[at]; /* its arrays are free */
    new.c = t->c;
    new.seconds = t->seconds;
    memcpy(new.n_bytes, t->n_bytes, sizeof(new.n_bytes));
    search_save(s, &new);
    for (; at > 0 && s->best[at - 1].seconds > t->seconds; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = new;
    s->n_best = MIN(s->n_best + 1, (int)N_BEST);
}

/* ---- emission -------------------------------------------------------------------------------- */

bool search_is_new(struct search *s, const struct candidate *c)
{
    const struct space *x = &s->space;
    size_t n = (size_t)x->survey.n_places;
    uint64_t hash = hash_bytes(x->option, n * sizeof(*x->option)) * 31 +
                    hash_bytes(x->away, n * sizeof(*x->away)) * 17 + (uint64_t)c->ring_bytes;
    for (int i = 0; i < s->n_emitted; i++) {
        if (s->tried[i] == hash)
            return false;
    }
    s->tried[s->n_emitted] = hash;
    return true;
}

static enum status emit(struct search *s, const struct candidate *c)
{
    struct decisions d = space_decisions(&s->space, c, s->places);
    TRY(workload_decide(s->w, &d));
    s->n_emitted++;
    return workload_bound(s->w);
}

/* What the recordings of these programs take beyond those that the room was found with. */
static int64_t more_recorded(const struct search *s)
{
    bool counts = s->w->device->ops->memory_is_apart;
    return counts ? forecast_recordings(s->w) - s->recorded_bytes : 0;
}

static bool fits(const struct search *s)
{
    return s->w->n_bytes[TIER_DEVICE] + more_recorded(s) <= s->space.room[TIER_DEVICE] &&
           s->w->n_bytes[TIER_HOST] <= s->space.room[TIER_HOST] &&
           s->w->n_bytes[TIER_DISK] <= s->space.room[TIER_DISK];
}

enum status search_try(struct search *s, const struct candidate *c, double *seconds, int64_t *slack)
{
    struct trial t = {.c = *c};
    TRY(emit(s, c));
    *slack = s->space.room[TIER_DEVICE] - s->w->n_bytes[TIER_DEVICE] - more_recorded(s);
    if (!fits(s))
        return OK;
    TRY(forecast_seconds(s->w, s->times, &t.seconds));
    memcpy(t.n_bytes, s->w->n_bytes, sizeof(t.n_bytes));
    keep(s, &t);
    *seconds = MIN(*seconds, t.seconds);
    return OK;
}

enum status search_try_candidate(struct search *s, struct candidate *c, double *seconds)
{
    int64_t room = s->space.room[TIER_DEVICE], slack = 0, margin = room / 512;
    *seconds = HUGE_VAL;
    for (int i = 0; i < N_CORRECTIONS && s->n_emitted < s->most_emitted; i++) {
        if (!space_expand(&s->space, c))
            return OK;
        if (search_is_new(s, c)) {
            TRY(search_try(s, c, seconds, &slack));
            c->extra += slack;
        } else if (slack >= 0) {
            return OK;
        } else { /* the next smaller choice is further away than what was over */
            c->extra -= margin;
            margin *= 2;
        }
        if (slack >= 0 && slack < room / 128)
            return OK;
    }
    return OK;
}
