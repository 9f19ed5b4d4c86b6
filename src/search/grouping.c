#include "search/grouping.h"

#include <math.h>

/* A step has to be shorter by this part for groups to be looked for: planning takes longer. */
#define WORTH 0.03
/* Those that are found win by this part: they take more memory, and launches that a prediction is
 * less sure of. */
#define AHEAD 0.005
/* When it is shorter by this part, the link is hardly what it waits for: smaller groups, which take
 * less memory, are not looked at. */
#define ENOUGH 0.25
/* And by this part, what is found without groups in the end will be no faster than they are. */
#define CLEARLY 0.15
/* Those that have lost are tried again against what is slower by this part: they would have to be
 * between the two, and looking for them takes as long again. */
#define AGAIN 0.1

enum {
    MOST = 8,    /* micro-batches: weights then cross the link once where they crossed it 8 times */
    N_TRIES = 2, /* sizes */
};

/* Weights and sums of gradients cross the link for every micro-batch. States cross it once, but all
 * beside the last micro-batch, where updates are; a group has the work of several to hide them
 * behind. Where copies are part of the line, as on a CPU, they are worth a search only from disk,
 * and those that are made once are not. */
static bool may_pay(const struct workload *w, const struct decisions *d)
{
    bool beside = w->device->ops->queue != NULL;
    return (d->n[EXTENT_WEIGHTS] > 0 && (beside || d->disk[EXTENT_WEIGHTS] > 0)) ||
           (d->n[EXTENT_GRADIENTS] > 0 && (beside || d->disk[EXTENT_GRADIENTS] > 0)) ||
           (d->n[EXTENT_STATES] > 0 && beside);
}

/* Seconds of a step with the programs as they are; infinite where they do not fit. */
static enum status time_step(const struct group_search *x, double *seconds)
{
    struct forecast f = {0};
    *seconds = HUGE_VAL;
    forecast_memory(&f, x->w, x->limits);
    return f.fits ? forecast_seconds(x->w, x->times, seconds) : OK;
}

/* The fastest way of running the step so far. */
struct grouped {
    double seconds;
    bool is_at_hand;           /* the workload has its programs; */
    struct set_aside programs; /* else these are they */
};

/* The largest below `limit` that leaves nothing over. */
static int next_size(int64_t n_micro, int limit)
{
    int size = limit - 1;
    while (size > 1 && n_micro % size != 0)
        size--;
    return size;
}

/* Groups of fewer and fewer, each with a search of its own. The programs of *best are set aside
 * while others are looked for. */
static enum status try_sizes(struct grouping *g, struct grouped *best)
{
    const struct group_search *x = g->search;
    const int64_t n_micro = workload_stage(x->w, STAGE_TRAIN)->n_micro;
    const double now = best->seconds;
    int size = next_size(n_micro, MOST + 1);
    for (int i = 0; i < N_TRIES && isfinite(now) && size > 1; i++) {
        struct decisions d = *g->configured;
        struct search_report found = {0};
        double then = HUGE_VAL, below = (1 - WORTH) * best->seconds;
        bool fits;
        d.group = size;
        if (best->is_at_hand)
            TRY(workload_set_aside(x->w, &best->programs));
        best->is_at_hand = false;
        TRY(x->plan(x, below, &d, &found, &fits));
        if (fits)
            TRY(time_step(x, &then));
        if (then < below) {
            set_aside_release(&best->programs);
            *best = (struct grouped){.seconds = then, .is_at_hand = true};
            g->seconds = then;
            g->d = d;
            g->report = found;
        }
        if (best->seconds < (1 - ENOUGH) * now)
            break;
        size = next_size(n_micro, size);
    }
    return OK;
}

double grouping_bar(const struct grouping *g)
{
    return g->seconds > 0 ? g->seconds / (1 - AHEAD) : HUGE_VAL;
}

enum status grouping_take(struct grouping *g)
{
    struct workload *w = g->search->w;
    g->won = true;
    TRY(workload_decide(w, &g->d));
    return forecast_place(w, g->search->limits);
}

/* Not faster by so much that nothing without groups will be: the search for that goes on. */
static enum status go_on_without(struct grouping *g, const struct decisions *d)
{
    g->won = false;
    TRY(workload_decide(g->search->w, d));
    return workload_bound(g->search->w);
}

enum status grouping_try(struct grouping *g, const struct decisions *d, bool is_last)
{
    const struct group_search *x = g->search;
    const struct stage *s = workload_stage(x->w, STAGE_TRAIN);
    struct grouped best = {.is_at_hand = true};
    double idle, now;
    if (!s || s->n_micro < 2 || x->bounds->fixed_group || !may_pay(x->w, d))
        return OK;
    TRY(time_step(x, &now));
    if (is_last && now > grouping_bar(g))
        TRY(grouping_take(g));
    TRY(forecast_idle(x->w, x->times, &idle));
    if (g->won || idle < WORTH * now || now <= (1 + AGAIN) * g->against)
        return OK; /* fewer copies would be no faster, or are known not to be */
    g->against = best.seconds = now;
    enum status status = try_sizes(g, &best);
    g->won = status == OK && best.seconds < now;
    if (status == OK && !best.is_at_hand)
        workload_bring_back(x->w, &best.programs);
    set_aside_release(&best.programs);
    if (g->won && !is_last && best.seconds > (1 - CLEARLY) * now)
        return go_on_without(g, d);
    return status;
}
