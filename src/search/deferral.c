#include "search/deferral.h"

#include <math.h>

#include "search/alternative.h"

/* A step has to be shorter by this part: weights are then finished only when somebody asks. */
#define WORTH 0.01

/* With the plan that was tried last. */
static enum status send_gradients_away(struct workload *w, struct decisions *d)
{
    struct place_choice *places;
    d->n[EXTENT_GRADIENTS] = workload_stage(w, STAGE_TRAIN)->plan.n_blocks + 1;
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

static enum status defer(struct workload *w, const struct limits *limits,
                         const struct kernel_times *times, bool gradients_may_leave, double now,
                         struct decisions *d, bool *taken)
{
    double worth = (1 - WORTH) * now, then = HUGE_VAL;
    struct decisions deferred = *d;
    deferred.defer_updates = true;
    for (int away = 0; away <= (gradients_may_leave ? 1 : 0) && !isfinite(then); away++) {
        if (away)
            TRY(send_gradients_away(w, &deferred));
        TRY(alternative_with(w, limits, times, &deferred, worth, &then));
    }
    *taken = then < worth;
    if (*taken)
        *d = deferred;
    return OK;
}

enum status deferral_try(struct workload *w, const struct limits *limits,
                         const struct kernel_times *times, bool gradients_may_leave,
                         struct decisions *d)
{
    const struct stage *s = workload_stage(w, STAGE_TRAIN);
    double now;
    bool can_hide = w->device->ops->queue != NULL; /* copies run beside kernels */
    bool taken = false;
    if (!s || workload_n_training(w) > 1) /* what is carried over is one program's */
        return OK;
    if (!can_hide || !decisions_copy(d) || !plan_may_defer(&s->plan, s->graph))
        return OK;
    TRY(alternative_now(w, limits, times, &now));
    if (!isfinite(now))
        return OK;
    struct set_aside before;
    TRY(workload_set_aside(w, &before));
    enum status status = defer(w, limits, times, gradients_may_leave, now, d, &taken);
    if (taken)
        set_aside_release(&before);
    else
        workload_bring_back(w, &before);
    return status;
}
