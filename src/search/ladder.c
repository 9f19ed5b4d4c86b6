#include "search/ladder.h"

#include <math.h>

enum {
    SMALL_BYTES = 1 << 20,
    RUNGS_TIMED = 3, /* of those that fit with a ring */
};

/* Rings are these parts of the device's budget. */
static const int64_t ring_parts[] = {4, 8, 16, 32, INT64_MAX};

/* Decisions that were tried, and what came of them. */
struct trial {
    struct decisions d;
    bool fits;
    double seconds; /* of a step */
};

struct ladder {
    struct workload *w;
    const struct limits *limits;
    const struct ladder_limits *bounds;
    const struct kernel_times *times;
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
    l->budget = f.budget.n_bytes[TIER_DEVICE];
    return OK;
}

static enum status time_trial(struct ladder *l, struct trial *t)
{
    struct stage *s = workload_stage(l->w, STAGE_TRAIN);
    struct prediction p;
    TRY(emit(l, t, workload_emit));
    if (!s)
        return OK;
    TRY(predict(&p, s->program, l->w->device, l->times));
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

/* What is taken back first where there is room: what costs the most to have away. */
static const enum extent taken_back[] = {EXTENT_WEIGHTS, EXTENT_RECOMPUTED, EXTENT_MOVED,
                                         EXTENT_GRADIENTS, EXTENT_STATES};

static struct trial trial_of(const struct ladder *l, const struct decisions *base,
                             const struct rung *r, int64_t ring, int64_t small)
{
    struct trial t = {.d = *base};
    t.d.ring_bytes = ring;
    t.d.small_bytes = small;
    for (int e = 0; e < EXTENT_COUNT; e++) {
        if ((r->full & BIT(e)) && !l->bounds->fixed[e])
            t.d.n[e] = l->most;
    }
    return t;
}

static enum status take_back(struct ladder *l, const struct decisions *base, struct trial *t)
{
    for (size_t i = 0; i < ARRAY_LEN(taken_back); i++)
        TRY(shrink(l, t, taken_back[i], base->n[taken_back[i]]));
    return OK;
}

static void keep_better(struct trial *best, const struct trial *t)
{
    if (t->fits && (!best->fits || t->seconds < best->seconds))
        *best = *t;
}

/* The best of what fits with rings of these sizes. */
static enum status climb(struct ladder *l, const struct decisions *base, int64_t small,
                         struct trial *best)
{
    for (size_t k = 0; k < ARRAY_LEN(ring_parts); k++) {
        int64_t ring = l->budget / ring_parts[k];
        int n_timed = 0;
        for (size_t i = 0; i < ARRAY_LEN(rungs) && n_timed < RUNGS_TIMED; i++) {
            struct trial t = trial_of(l, base, &rungs[i], ring, small);
            TRY(emit(l, &t, workload_bound));
            if (!t.fits)
                continue;
            TRY(take_back(l, base, &t));
            TRY(time_trial(l, &t));
            keep_better(best, &t);
            n_timed++;
        }
    }
    return OK;
}

enum status ladder_climb(struct workload *w, const struct limits *limits,
                         const struct ladder_limits *bounds, const struct kernel_times *times,
                         struct decisions *d)
{
    struct ladder l = {.w = w, .limits = limits, .bounds = bounds, .times = times};
    struct trial best = {.d = *d};
    TRY(emit(&l, &best, workload_emit));
    if (best.fits)
        return OK;
    l.most = w->stages[0].plan.n_blocks + 1;
    best.seconds = INFINITY;
    TRY(climb(&l, d, SMALL_BYTES, &best));
    if (!best.fits)
        TRY(climb(&l, d, 0, &best));
    *d = best.d;
    return emit(&l, &best, workload_emit);
}
