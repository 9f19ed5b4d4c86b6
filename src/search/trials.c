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
    if (s->ahead_of)
        return;
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
    new.slack = t->slack;
    new.is_climbed = false;
    memcpy(new.n_bytes, t->n_bytes, sizeof(new.n_bytes));
    search_save(s, &new);
    for (; at > 0 && s->best[at - 1].seconds > t->seconds; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = new;
    s->n_best = MIN(s->n_best + 1, (int)N_BEST);
}

void search_take_room(struct search *s, const struct gaps *less)
{
    int64_t *room = s->space.room, n_bytes = less->n_bytes[TIER_DEVICE];
    int n = 0;
    for (int t = 0; t < TIER_COUNT; t++)
        room[t] -= less->n_bytes[t];
    s->n_emitted = 0;
    s->n_before = s->n_instrs;
    for (int i = 0; i < s->n_best; i++) {
        struct trial t = s->best[i];
        t.slack -= n_bytes;
        t.c.extra += n_bytes; /* the same choice */
        if (t.slack < 0 || t.n_bytes[TIER_HOST] > room[TIER_HOST])
            continue;
        s->best[i] = s->best[n]; /* its arrays are free */
        s->best[n++] = t;
    }
    s->n_best = n;
    for (int i = 0; i < s->n_tried; i++) {
        struct tried *t = &s->tried[i];
        t->slack -= n_bytes;
        t->extra += n_bytes;
        if (t->slack < 0 || t->host_bytes > room[TIER_HOST])
            t->seconds = HUGE_VAL;
    }
}

/* ---- emission -------------------------------------------------------------------------------- */

static uint64_t hash_choice(const struct search *s, const struct candidate *c)
{
    const struct space *x = &s->space;
    size_t n = (size_t)x->survey.n_places;
    return hash_bytes(x->option, n * sizeof(*x->option)) * 31 +
           hash_bytes(x->away, n * sizeof(*x->away)) * 17 + (uint64_t)c->ring_bytes;
}

static const struct tried *find_choice(const struct search *s, const struct candidate *c)
{
    const uint64_t choice = hash_choice(s, c);
    for (int i = 0; i < s->n_tried; i++) {
        if (s->tried[i].choice == choice)
            return &s->tried[i];
    }
    return NULL;
}

bool search_is_new(struct search *s, const struct candidate *c)
{
    if (find_choice(s, c) || s->n_tried == MAX_TRIED)
        return false;
    s->tried[s->n_tried++] = (struct tried){.choice = hash_choice(s, c),
                                            .seconds = HUGE_VAL,
                                            .ring_bytes = c->ring_bytes,
                                            .extra = c->extra};
    return true;
}

/* Was this plan tried? Choices differ in what no plan does: what is too small to leave, or never in
 * memory as a whole. */
static const struct tried *find_plan(const struct search *s, uint64_t plan)
{
    for (int i = 0; i + 1 < s->n_tried; i++) {
        if (s->tried[i].plan == plan)
            return &s->tried[i];
    }
    return NULL;
}

/* What a program leaves of the device's room, with what its recording takes beyond those that the
 * room was found with. */
static int64_t slack_of(const struct search *s, const struct known_program *p)
{
    bool counts = s->w->device->ops->memory_is_apart;
    int64_t more_recorded = counts ? p->recorded_bytes - s->recorded_bytes : 0;
    return s->space.room[TIER_DEVICE] - p->n_bytes[TIER_DEVICE] - more_recorded;
}

static bool fits(const struct search *s, const struct known_program *p)
{
    return slack_of(s, p) >= 0 && p->n_bytes[TIER_HOST] <= s->space.room[TIER_HOST] &&
           p->n_bytes[TIER_DISK] <= s->space.room[TIER_DISK];
}

/* What the plan at hand comes to. Where it does not fit, nobody wants to know its seconds. */
static enum status emit(struct search *s, struct known_program *p)
{
    TRY(workload_bound(s->w));
    memcpy(p->n_bytes, s->w->n_bytes, sizeof(p->n_bytes));
    p->recorded_bytes = forecast_recordings(s->w);
    p->n_instrs = (int64_t)s->space.stage->program->instrs.n;
    return fits(s, p) ? forecast_seconds(s->w, s->times, &p->seconds) : OK;
}

/* The same, where another search may have come to it before. */
static enum status find_program(struct search *s, uint64_t plan, struct known_program *out)
{
    *out = (struct known_program){.plan = plan, .group = s->space.stage->group};
    if (s->known && known_find(s->known, out) && (out->seconds > 0 || !fits(s, out)))
        return OK;
    if (s->ahead_of && foresight_is_late(s->ahead_of))
        return ERR_INTERRUPTED;
    TRY(emit(s, out));
    return s->known ? known_put(s->known, out) : OK;
}

static enum status weigh(struct search *s, const struct candidate *c, struct tried *out)
{
    struct known_program p;
    TRY(find_program(s, out->plan, &p));
    s->n_emitted++;
    s->n_instrs += p.n_instrs;
    s->n_at_hand = p.n_instrs;
    out->slack = slack_of(s, &p);
    out->host_bytes = p.n_bytes[TIER_HOST];
    if (!fits(s, &p))
        return OK;
    struct trial t = {.c = *c, .seconds = p.seconds, .slack = out->slack};
    memcpy(t.n_bytes, p.n_bytes, sizeof(t.n_bytes));
    out->seconds = p.seconds;
    keep(s, &t);
    return OK;
}

enum status search_try(struct search *s, const struct candidate *c, double *seconds, int64_t *slack)
{
    const struct decisions d = space_decisions(&s->space, c, s->places);
    struct tried *now = &s->tried[s->n_tried - 1];
    TRY(workload_decide(s->w, &d));
    now->plan = plan_hash(&s->space.stage->plan, s->space.stage->graph);
    const struct tried *before = find_plan(s, now->plan);
    if (before) {
        now->seconds = before->seconds;
        now->slack = before->slack;
        now->host_bytes = before->host_bytes;
    } else {
        TRY(weigh(s, c, now));
    }
    *slack = now->slack;
    *seconds = MIN(*seconds, now->seconds);
    return OK;
}

/* What it took too much is taken from what saved sets may have, and what it left is given to them;
 * where that made no difference before, it is the ring's. Tensors are in a ring as a whole: where
 * taking so much from it made no difference either, it is half. */
static void correct(struct candidate *c, int64_t slack, int64_t before, bool was_ring)
{
    bool is_short = slack < 0 && before < 0 && slack < before / 2;
    bool is_idle = slack > 0 && before > 0 && slack > before / 2;
    if (is_short && was_ring)
        c->ring_bytes /= 2;
    else if (is_short && c->ring_bytes > 0)
        c->ring_bytes = MAX(c->ring_bytes + slack, (int64_t)0);
    else if (is_idle && c->ring_bytes > 0)
        c->ring_bytes += slack / 2;
    else
        c->extra += slack;
}

/* By how much what is at hand, which is not new, was over; 0: it was not, or is not known. */
static int64_t known_lack(const struct search *s, const struct candidate *c)
{
    const struct tried *t = find_choice(s, c);
    return t ? MIN(t->slack, (int64_t)0) : 0;
}

/* Saved sets have nothing left to give for what was over: the ring may. */
static bool expand_with_less(struct search *s, struct candidate *c, int64_t slack)
{
    c->extra -= slack;
    c->ring_bytes = MAX(c->ring_bytes + slack, (int64_t)0);
    return slack < 0 && space_expand(&s->space, c);
}

enum status search_try_candidate(struct search *s, struct candidate *c, double *seconds)
{
    int64_t room = s->space.room[TIER_DEVICE], slack = 0, margin = room / 512;
    bool was_ring = false; /* what was corrected last */
    *seconds = HUGE_VAL;
    for (int i = 0; i < N_CORRECTIONS && s->n_emitted < s->most_emitted; i++) {
        int64_t before = slack, ring_bytes = c->ring_bytes;
        const bool is_last = !space_expand(&s->space, c);
        if (is_last && (was_ring || !expand_with_less(s, c, slack)))
            return OK;
        if (search_is_new(s, c)) {
            TRY(search_try(s, c, seconds, &slack));
            correct(c, slack, before, was_ring);
            was_ring = c->ring_bytes != ring_bytes;
        } else if (i == 0) { /* tried for what it teaches, which it now does */
            slack = known_lack(s, c);
            if (slack == 0)
                return OK;
            correct(c, slack, before, was_ring);
        } else if (slack >= 0) {
            return OK;
        } else { /* the next smaller choice is further away than what was over */
            c->extra -= margin;
            margin *= 2;
        }
        if ((slack >= 0 && slack < room / 128) || is_last)
            return OK;
    }
    return OK;
}
