#include "search/reference_ladder.h"

#include <math.h>

enum {
    SMALL_BYTES = 1 << 20,
    RUNGS_TIMED = 3, /* of those that fit with a ring */
};

/* Rings are these parts of the device's budget; of what is away where that is a choice of the
 * config alone. */
static const int64_t ring_parts[] = {4, 8, 16, 32, INT64_MAX};

/* Decisions that were tried, and what came of them. */
struct trial {
    struct decisions d;
    bool fits;
    bool lacks_host; /* more of the host's memory than there is, whatever of the device's */
    double seconds;  /* of a step */
};

struct ladder {
    struct workload *w;
    const struct limits *limits;
    int most;       /* an extent's largest value */
    int64_t budget; /* of the device */
};

/* ---- one candidate --------------------------------------------------------------------------- */

static enum status emit(struct ladder *l, struct trial *t, enum status (*make)(struct workload *w))
{
    struct forecast f = {0};
    TRY(workload_decide(l->w, &t->d));
    TRY(make(l->w));
    forecast_memory(&f, l->w, l->limits);
    t->fits = f.fits;
    t->lacks_host = f.budget.needs[TIER_HOST] > f.budget.n_bytes[TIER_HOST];
    l->budget = f.budget.n_bytes[TIER_DEVICE];
    return OK;
}

static enum status time_trial(struct ladder *l, struct trial *t)
{
    struct stage *s = workload_stage(l->w, STAGE_TRAIN);
    struct prediction p;
    TRY(emit(l, t, workload_bound));
    if (!s)
        return OK;
    TRY(predict(&p, s->program, l->w->device, NULL));
    enum status status = predict_step(&p, s->program, l->w->device, s->n_micro, &t->seconds);
    prediction_release(&p);
    return status;
}

/* The smallest value of an extent with which t fits; it fits with the value it has. */
static enum status shrink(struct ladder *l, struct trial *t, enum extent e, int least)
{
    int low = least, high = t->d.n[e];
    while (low < high) {
        t->d.n[e] = (low + high) / 2;
        TRY(emit(l, t, workload_bound));
        if (t->fits)
            high = t->d.n[e];
        else
            low = t->d.n[e] + 1;
    }
    t->d.n[e] = high;
    t->fits = true;
    return OK;
}

/* ---- climbing -------------------------------------------------------------------------------- */

/* The order in which extents grow: first what a step pays for in the link alone, or in arithmetic
 * alone; then both; then what outlives the step. */
struct rung {
    unsigned full; /* bits of extents that are as large as they can be */
};

#define BIT(e) (1u << (e))

static const struct rung rungs[] = {
    {BIT(EXTENT_MOVED)},
    {BIT(EXTENT_RECOMPUTED)},
    {BIT(EXTENT_MOVED) | BIT(EXTENT_RECOMPUTED)},
    {BIT(EXTENT_STATES)},
    {BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES)},
    {BIT(EXTENT_MOVED) | BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES)},
    {BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES) | BIT(EXTENT_GRADIENTS)},
    {BIT(EXTENT_MOVED) | BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES) | BIT(EXTENT_GRADIENTS)},
    {BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES) | BIT(EXTENT_GRADIENTS) | BIT(EXTENT_WEIGHTS)},
    {BIT(EXTENT_COUNT) - 1},
};

/* Orders in which is taken back what there is room for: which one is best depends on what binds,
 * the link or the arithmetic. */
static const enum extent orders[][EXTENT_COUNT] = {
    {EXTENT_WEIGHTS, EXTENT_RECOMPUTED, EXTENT_MOVED, EXTENT_GRADIENTS, EXTENT_STATES},
    {EXTENT_RECOMPUTED, EXTENT_MOVED, EXTENT_WEIGHTS, EXTENT_GRADIENTS, EXTENT_STATES},
    {EXTENT_MOVED, EXTENT_GRADIENTS, EXTENT_WEIGHTS, EXTENT_STATES, EXTENT_RECOMPUTED},
    {EXTENT_GRADIENTS, EXTENT_STATES, EXTENT_WEIGHTS, EXTENT_MOVED, EXTENT_RECOMPUTED},
};

static struct trial trial_of(const struct ladder *l, const struct trial *start,
                             const struct rung *r)
{
    struct trial t = {.d = start->d};
    for (int e = 0; e < EXTENT_COUNT; e++) {
        if ((r->full & BIT(e)))
            t.d.n[e] = l->most;
    }
    return t;
}

static enum status take_back(struct ladder *l, const struct decisions *base,
                             const enum extent order[EXTENT_COUNT], struct trial *t)
{
    for (int i = 0; i < EXTENT_COUNT; i++)
        TRY(shrink(l, t, order[i], base->n[order[i]]));
    return OK;
}

static void keep_better(struct trial *best, const struct trial *t)
{
    if (t->fits && (!best->fits || t->seconds < best->seconds))
        *best = *t;
}

/* The best of the first rungs that fit with a ring. */
static enum status climb_with(struct ladder *l, const struct trial *start, const struct rung *first,
                              const enum extent order[EXTENT_COUNT], struct trial *best)
{
    int n_timed = 0;
    for (const struct rung *r = first; r < rungs + ARRAY_LEN(rungs) && n_timed < RUNGS_TIMED; r++) {
        struct trial t = trial_of(l, start, r);
        TRY(emit(l, &t, workload_bound));
        if (!t.fits)
            continue;
        TRY(take_back(l, &start->d, order, &t));
        TRY(time_trial(l, &t));
        keep_better(best, &t);
        n_timed++;
    }
    return OK;
}

/* The ring first, then what else can be done beside the best of them. */
static enum status climb(struct ladder *l, struct trial start, struct trial *best)
{
    for (size_t k = 0; k < ARRAY_LEN(ring_parts); k++) {
        start.d.ring_bytes = l->budget / ring_parts[k];
        TRY(climb_with(l, &start, rungs, orders[0], best));
    }
    if (!best->fits)
        return OK;
    start.d.ring_bytes = best->d.ring_bytes;
    for (size_t o = 1; o < ARRAY_LEN(orders); o++) {
        TRY(climb_with(l, &start, rungs, orders[o], best));
        TRY(climb_with(l, &start, rungs + ARRAY_LEN(rungs) - 2, orders[o], best));
    }
    return OK;
}

enum status reference_ladder(struct workload *w, const struct limits *limits, struct decisions d,
                             double *seconds)
{
    struct ladder l = {.w = w, .limits = limits};
    struct trial best = {.d = d, .seconds = HUGE_VAL}, start = best;
    TRY(emit(&l, &best, workload_bound));
    best.fits = false;
    l.most = w->stages[0].plan.n_blocks + 1;
    start.d.small_bytes = SMALL_BYTES;
    TRY(climb(&l, start, &best));
    start.d.small_bytes = 0;
    if (!best.fits)
        TRY(climb(&l, start, &best));
    *seconds = best.fits ? best.seconds : HUGE_VAL;
    return OK;
}
