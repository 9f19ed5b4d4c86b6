#include "search/deferral.h"

#include <math.h>

/* A step has to be shorter by this part: weights are then finished only when somebody asks. */
#define WORTH 0.01

/* Seconds of a step with the programs as they are; infinite where they do not fit. */
static enum status time_step(struct workload *w, const struct limits *limits,
                             const struct kernel_times *times, double *seconds)
{
    const struct stage *s = workload_stage(w, STAGE_TRAIN);
    struct forecast f = {0};
    struct prediction p;
    *seconds = HUGE_VAL;
    forecast_memory(&f, w, limits);
    if (!f.fits)
        return OK;
    TRY(predict(&p, s->program, w->device, times));
    enum status status = predict_step(&p, s->program, w->device, s->n_micro, seconds);
    prediction_release(&p);
    return status;
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
    if (!s || !can_hide || !decisions_copy(d) || !plan_may_defer(&s->plan, s->graph))
        return OK;
    TRY(time_step(w, limits, times, &now));
    if (!isfinite(now))
        return OK;
    struct decisions deferred = *d;
    deferred.defer_updates = true;
    for (int away = 0; away <= gradients_may_leave && !isfinite(then); away++) {
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
