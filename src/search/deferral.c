#include "search/deferral.h"

#include <math.h>

/* A step has to be shorter by this part: weights are then finished only when somebody asks. */
#define WORTH 0.01

/* Seconds of a step with the programs as they are; infinite where they do not fit. */
static enum status time_step(struct workload *w, const struct limits *limits,
                             const struct kernel_times *times, double *seconds)
{
    struct forecast f = {0};
    *seconds = HUGE_VAL;
    forecast_memory(&f, w, limits);
    return f.fits ? forecast_seconds(w, times, seconds) : OK;
}

static enum status emit(struct workload *w, const struct decisions *d)
{
    TRY(workload_decide(w, d));
    return workload_emit(w);
}

static enum status send_gradients_away(struct workload *w, int n_blocks, struct decisions *d)
{
    struct place_choice *places;
    d->n[EXTENT_GRADIENTS] = n_blocks + 1;
    if (!d->places)
        return OK;
    TRY(pool_try(&w->pool, &places, (size_t)d->n_places * sizeof(*places)));
    for (int p = 0; p < d->n_places; p++) {
        places[p] = d->places[p];
        places[p].away[HOME_GRADIENTS] = true;
    }
    d->places = places;
    return OK;
}

enum status deferral_try(struct workload *w, const struct limits *limits,
                         const struct kernel_times *times, bool gradients_may_leave,
                         struct decisions *d)
{
    const struct stage *s = workload_stage(w, STAGE_TRAIN);
    double now, then = HUGE_VAL;
    bool can_hide = w->device->ops->queue != NULL; /* copies run beside kernels */
    if (!s || workload_n_training(w) > 1)          /* what is carried over is one program's */
        return OK;
    if (!can_hide || !decisions_copy(d) || !plan_may_defer(&s->plan, s->graph))
        return OK;
    TRY(time_step(w, limits, times, &now));
    if (!isfinite(now))
        return OK;
    struct decisions deferred = *d;
    deferred.defer_updates = true;
    for (int away = 0; away <= (gradients_may_leave ? 1 : 0) && !isfinite(then); away++) {
        if (away)
            TRY(send_gradients_away(w, s->plan.n_blocks, &deferred));
        TRY(emit(w, &deferred));
        TRY(time_step(w, limits, times, &then));
    }
    if (then < (1 - WORTH) * now)
        *d = deferred;
    else
        TRY(emit(w, d));
    return OK;
}
