#include "search/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    SMALL_BYTES = 1 << 20,
    N_TOP = 12,         /* candidates that are emitted after the ranking */
    N_CORRECTIONS = 6,  /* emissions of one candidate, each with what the last one taught */
    MAX_EMISSIONS = 96, /* of one search */
};

/* A larger ring is worth its memory when the step is shorter by this part. */
#define WORTH 0.01

/* A candidate that was emitted and fits. */
struct trial {
    struct candidate c;
    double seconds;
    int64_t n_bytes[TIER_COUNT];
};

struct search {
    struct workload *w;
    const struct limits *limits;
    const struct kernel_times *times;
    struct space space;
    struct place_choice *places; /* of the candidate at hand */
    struct candidate top[N_TOP]; /* by estimate, best first */
    int n_top;
    struct trial best[MAX_FINDINGS]; /* by seconds */
    int n_best;
    int n_ranked, n_emitted;
    uint64_t tried[MAX_EMISSIONS]; /* what was emitted, by a hash of what was expanded */
};

/* ---- what was found -------------------------------------------------------------------------- */

static enum status rank(void *user, const struct candidate *c)
{
    struct search *s = user;
    int at = s->n_top;
    s->n_ranked++;
    for (int i = 0; i < s->n_top; i++) {
        if (s->top[i].estimate == c->estimate && s->top[i].ring_bytes == c->ring_bytes)
            return OK; /* other numbers for the same */
    }
    if (at == N_TOP && c->estimate >= s->top[N_TOP - 1].estimate)
        return OK;
    at = MIN(at, N_TOP - 1);
    for (; at > 0 && s->top[at - 1].estimate > c->estimate; at--)
        s->top[at] = s->top[at - 1];
    s->top[at] = *c;
    s->n_top = MIN(s->n_top + 1, (int)N_TOP);
    return OK;
}

static bool is_same(const struct trial *a, const struct trial *b)
{
    return a->seconds == b->seconds && a->n_bytes[TIER_DEVICE] == b->n_bytes[TIER_DEVICE];
}

static void keep(struct search *s, const struct trial *t)
{
    int at = s->n_best;
    for (int i = 0; i < s->n_best; i++) {
        if (is_same(&s->best[i], t))
            return;
    }
    if (at == MAX_FINDINGS && t->seconds >= s->best[at - 1].seconds)
        return;
    at = MIN(at, MAX_FINDINGS - 1);
    for (; at > 0 && s->best[at - 1].seconds > t->seconds; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = *t;
    s->n_best = MIN(s->n_best + 1, (int)MAX_FINDINGS);
}

/* ---- emitting -------------------------------------------------------------------------------- */

static enum status step_seconds(const struct search *s, double *seconds)
{
    const struct stage *stage = s->space.stage;
    struct prediction p;
    TRY(predict(&p, stage->program, s->w->device, s->times));
    enum status status = predict_step(&p, stage->program, s->w->device, stage->n_micro, seconds);
    prediction_release(&p);
    return status;
}

static bool fits(const struct search *s)
{
    return s->w->n_bytes[TIER_DEVICE] <= s->space.room[TIER_DEVICE] &&
           s->w->n_bytes[TIER_HOST] <= s->space.room[TIER_HOST];
}

/* Emits what was expanded last. */
static enum status emit(struct search *s, const struct candidate *c)
{
    struct decisions d = space_decisions(&s->space, c, s->places);
    TRY(workload_decide(s->w, &d));
    s->n_emitted++;
    return workload_bound(s->w);
}

/* Is what was expanded last new? */
static bool is_new(struct search *s, const struct candidate *c)
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

/* Emits c and, where it fits, keeps it; *slack is what it leaves of the device's room. */
static enum status try_once(struct search *s, const struct candidate *c, double *seconds,
                            int64_t *slack)
{
    struct trial t = {.c = *c};
    TRY(emit(s, c));
    *slack = s->space.room[TIER_DEVICE] - s->w->n_bytes[TIER_DEVICE];
    if (!fits(s))
        return OK;
    TRY(step_seconds(s, &t.seconds));
    memcpy(t.n_bytes, s->w->n_bytes, sizeof(t.n_bytes));
    keep(s, &t);
    *seconds = MIN(*seconds, t.seconds);
    return OK;
}

/* Emits c, as often as its bytes teach something about how many the saved sets may take; *seconds
 * is the least of what fits (HUGE_VAL: nothing does). */
static enum status try_candidate(struct search *s, struct candidate *c, double *seconds)
{
    int64_t room = s->space.room[TIER_DEVICE], slack = 0, margin = room / 512;
    *seconds = HUGE_VAL;
    for (int i = 0; i < N_CORRECTIONS && s->n_emitted < MAX_EMISSIONS; i++) {
        if (!space_expand(&s->space, c))
            return OK;
        if (is_new(s, c)) {
            TRY(try_once(s, c, seconds, &slack));
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

/* ---- step by step ---------------------------------------------------------------------------- */

enum { MAX_NEIGHBOURS = 40 };

static int clamp(const struct search *s, int n)
{
    return MAX(0, MIN(n, s->space.n_blocks));
}

static bool is_open(const struct search *s, enum home_class c)
{
    static const enum extent extents[HOME_CLASS_COUNT] = {EXTENT_WEIGHTS, EXTENT_STATES,
                                                          EXTENT_GRADIENTS};
    return !s->space.bounds.fixed[extents[c]];
}

/* Candidates that differ in one number. */
static int list_neighbours(const struct search *s, const struct candidate *c,
                           struct candidate out[MAX_NEIGHBOURS])
{
    const int eighth = MAX(s->space.n_blocks / 8, 2), steps[] = {-eighth, -1, 1, eighth};
    static const double rings[] = {0.5, 0.75, 1.35, 2.0};
    int n = 0;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        if (!is_open(s, (enum home_class)h))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            out[n] = *c;
            out[n++].homes[h].n_blocks = clamp(s, c->homes[h].n_blocks + steps[i]);
        }
        out[n] = *c;
        out[n++].homes[h].ends = !c->homes[h].ends;
        out[n] = *c;
        out[n++].homes[h].from_first = !c->homes[h].from_first;
    }
    for (size_t i = 0; i < ARRAY_LEN(rings); i++) {
        out[n] = *c;
        out[n++].ring_bytes = (int64_t)((double)c->ring_bytes * rings[i]);
    }
    for (int step = -1; step <= 1; step += 2) {
        out[n] = *c;
        out[n++].price = MAX(0, MIN(c->price + step, s->space.n_prices - 1));
    }
    return n;
}

static int by_estimate(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

/* Tries the neighbours of the best in the order of their estimates until one is better. */
static enum status step_once(struct search *s, bool *improved)
{
    struct candidate list[MAX_NEIGHBOURS];
    const struct candidate from = s->best[0].c;
    double best = s->best[0].seconds;
    int n = list_neighbours(s, &from, list), n_open = 0;
    *improved = false;
    for (int i = 0; i < n; i++) {
        if (memcmp(&list[i], &from, sizeof(from)) == 0 || !space_expand(&s->space, &list[i]))
            continue;
        list[n_open] = list[i];
        list[n_open].estimate = space_estimate(&s->space, &list[i]);
        n_open++;
    }
    s->n_ranked += n_open;
    qsort(list, (size_t)n_open, sizeof(*list), by_estimate);
    for (int i = 0; i < n_open && s->n_emitted < MAX_EMISSIONS && !*improved; i++) {
        double seconds;
        if (list[i].estimate > 1.05 * from.estimate)
            break;
        TRY(try_candidate(s, &list[i], &seconds));
        *improved = seconds < best;
    }
    return OK;
}

static enum status look(struct search *s)
{
    int64_t extra = 0;
    for (int round = 0; round < 2; round++) {
        s->n_top = 0;
        TRY(space_visit(&s->space, extra, rank, s));
        for (int i = 0; i < s->n_top && i < N_TOP / (round ? 1 : 4); i++) {
            double seconds;
            TRY(try_candidate(s, &s->top[i], &seconds));
        }
        if (s->n_best == 0)
            continue;
        extra = s->best[0].c.extra;
    }
    for (bool improved = s->n_best > 0; improved && s->n_emitted < MAX_EMISSIONS;)
        TRY(step_once(s, &improved));
    return OK;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Decisions that live as long as the workload. */
static enum status take(struct search *s, const struct candidate *c, struct decisions *d)
{
    struct pool *pool = &s->w->pool;
    struct place_choice *places;
    if (!space_expand(&s->space, c))
        return FAIL(ERR_INTERNAL, "a candidate that was tried cannot be found again");
    *d = space_decisions(&s->space, c, s->places);
    TRY(pool_try(pool, &places, (size_t)d->n_places * sizeof(*places)));
    memcpy(places, s->places, (size_t)d->n_places * sizeof(*places));
    for (int p = 0; p < d->n_places; p++) {
        int like = 0;
        while (s->places[like].saved != s->places[p].saved)
            like++;
        if (like < p)
            places[p].saved = places[like].saved;
        else
            TRY(saved_set_copy(s->places[p].saved, pool, &places[p].saved));
    }
    d->places = places;
    return OK;
}

static void report_trials(struct search *s, struct search_report *out)
{
    *out = (struct search_report){.n_ranked = s->n_ranked, .n_emitted = s->n_emitted};
    for (int i = 0; i < s->n_best; i++) {
        const struct trial *t = &s->best[i];
        struct finding *f = &out->findings[out->n_findings++];
        struct str text = {0};
        f->seconds = t->seconds;
        memcpy(f->n_bytes, t->n_bytes, sizeof(f->n_bytes));
        if (!space_expand(&s->space, &t->c))
            continue;
        struct decisions d = space_decisions(&s->space, &t->c, s->places);
        decisions_add_text(&d, s->space.n_blocks, &text);
        (void)snprintf(f->text, sizeof(f->text), "%s", str_text(&text));
        str_release(&text);
    }
}

/* The fastest that still fits with addresses. */
static enum status choose(struct search *s, struct decisions *d, bool *found)
{
    *found = false;
    for (int i = 0; i < s->n_best && !*found; i++) {
        struct forecast f = {0};
        TRY(take(s, &s->best[i].c, d));
        TRY(workload_decide(s->w, d));
        TRY(workload_emit(s->w));
        forecast_memory(&f, s->w, s->limits);
        *found = f.fits;
        if (*found || i + 1 == s->n_best)
            continue;
        memmove(&s->best[0], &s->best[i + 1], (size_t)(s->n_best - i - 1) * sizeof(s->best[0]));
        s->n_best -= i + 1;
        i = -1;
    }
    return OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* What the arenas may take: the budgets less what the process holds beside them. */
static void read_room(const struct forecast *f, int64_t room[TIER_COUNT])
{
    const struct budget *b = &f->budget;
    int64_t arenas[TIER_COUNT] = {f->arena_bytes, f->host_bytes, f->disk_bytes};
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t beside = MAX(b->needs[t] - arenas[t], (int64_t)0);
        room[t] = b->n_bytes[t] == INT64_MAX ? INT64_MAX / 4 : b->n_bytes[t] - beside;
    }
}

static enum status search_with(struct search *s, const struct decisions *base,
                               const struct search_bounds *bounds, const int64_t room[TIER_COUNT],
                               struct decisions *d, struct search_report *report, bool *found)
{
    *found = false;
    TRY(space_init(&s->space, s->w, s->times, base, bounds, room));
    enum status status = pool_try(&s->space.survey.pool, &s->places,
                                  (size_t)s->space.survey.n_places * sizeof(*s->places));
    if (status == OK)
        status = look(s);
    if (status == OK)
        status = choose(s, d, found);
    if (status == OK && *found && report)
        report_trials(s, report);
    space_release(&s->space);
    return status;
}

/* What is configured fits: nothing more has to leave, and what has left is fetched no further ahead
 * than it takes. */
static enum status choose_ring(struct search *s, struct decisions *d)
{
    static const int64_t parts[] = {INT64_MAX, 32, 16, 8, 4};
    int64_t away = s->w->n_bytes[TIER_HOST];
    struct decisions best = *d;
    double least = HUGE_VAL;
    s->space.stage = workload_stage(s->w, STAGE_TRAIN);
    best.small_bytes = SMALL_BYTES;
    for (size_t k = 0; k < ARRAY_LEN(parts) && s->space.stage; k++) {
        struct forecast f = {0};
        struct decisions more = best;
        double seconds;
        more.ring_bytes = away / parts[k];
        TRY(workload_decide(s->w, &more));
        TRY(workload_bound(s->w));
        forecast_memory(&f, s->w, s->limits);
        TRY(step_seconds(s, &seconds));
        if (f.fits && seconds < (1 - WORTH) * least) {
            least = seconds;
            best.ring_bytes = more.ring_bytes;
        }
    }
    if (least < HUGE_VAL)
        *d = best;
    TRY(workload_decide(s->w, d));
    return workload_emit(s->w);
}

enum status search_plan(struct workload *w, const struct limits *limits,
                        const struct search_bounds *bounds, const struct kernel_times *times,
                        struct decisions *d, struct search_report *report)
{
    struct forecast f = {0};
    const struct decisions configured = *d;
    int64_t room[TIER_COUNT];
    bool found = false;
    TRY(workload_decide(w, d));
    TRY(workload_emit(w));
    forecast_memory(&f, w, limits);
    if (f.fits && !decisions_copy(d))
        return OK;
    struct search s = {.w = w, .limits = limits, .times = times};
    if (f.fits)
        return choose_ring(&s, d);
    read_room(&f, room);
    static const int64_t smallest[] = {SMALL_BYTES, 0};
    for (size_t i = 0; i < ARRAY_LEN(smallest) && workload_stage(w, STAGE_TRAIN) && !found; i++) {
        struct decisions base = configured;
        base.small_bytes = smallest[i];
        s = (struct search){.w = w, .limits = limits, .times = times};
        TRY(search_with(&s, &base, bounds, room, d, report, &found));
    }
    if (found)
        return OK;
    *d = configured;
    return search_least(w, limits, bounds, d);
}
