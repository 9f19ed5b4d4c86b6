#include "search/grouping.h"

#include <math.h>

/* A step has to be shorter by this part: planning takes longer, and more of memory is in use. */
#define WORTH 0.03
/* When it is shorter by this part, the link is hardly what it waits for: smaller groups, which take
 * less memory, are not looked at. */
#define ENOUGH 0.25

enum {
    MOST = 8,    /* micro-batches: weights then cross the link once where they crossed it 8 times */
    N_TRIES = 2, /* sizes */
};

/* Weights and sums of gradients cross the link for every micro-batch; the rest once in a step, or
 * with each anyway. Where copies are part of the line, as on a CPU, they are worth a search only
 * from disk. */
static bool may_pay(const struct workload *w, const struct decisions *d)
{
    bool beside = w->device->ops->queue != NULL;
    return (d->n[EXTENT_WEIGHTS] > 0 && (beside || d->disk[EXTENT_WEIGHTS] > 0)) ||
           (d->n[EXTENT_GRADIENTS] > 0 && (beside || d->disk[EXTENT_GRADIENTS] > 0));
}

/* Seconds of a step with the programs as they are; infinite where they do not fit. */
static enum status time_step(const struct group_search *x, double *seconds)
{
    struct forecast f = {0};
    *seconds = HUGE_VAL;
    forecast_memory(&f, x->w, x->limits);
    return f.fits ? forecast_seconds(x->w, x->times, seconds) : OK;
}

/* The largest below `limit` that leaves nothing over. */
static int next_size(int64_t n_micro, int limit)
{
    int size = limit - 1;
    while (size > 1 && n_micro % size != 0)
        size--;
    return size;
}

enum status grouping_try(const struct group_search *x, const struct decisions *configured,
                         struct decisions *d, struct search_report *report)
{
    const struct stage *s = workload_stage(x->w, STAGE_TRAIN);
    double now, best, idle;
    if (!s || s->n_micro < 2 || x->bounds->fixed_group || !may_pay(x->w, d))
        return OK;
    TRY(time_step(x, &now));
    TRY(forecast_idle(x->w, x->times, &idle));
    if (idle < WORTH * now)
        return OK; /* fewer copies would be no faster */
    best = now;
    int size = next_size(s->n_micro, MOST + 1), current = 1;
    for (int i = 0; i < N_TRIES && isfinite(now) && size > 1; i++) {
        struct decisions grouped = *configured;
        struct search_report found = {0};
        double then;
        grouped.group = current = size;
        TRY(x->plan(x, &grouped, &found));
        TRY(time_step(x, &then));
        if (then < (1 - WORTH) * best) {
            best = then;
            *d = grouped;
            if (report)
                *report = found;
        }
        if (best < (1 - ENOUGH) * now)
            break;
        size = next_size(s->n_micro, size);
    }
    if (current == MAX(d->group, 1))
        return OK;
    TRY(workload_decide(x->w, d));
    return workload_emit(x->w);
}
