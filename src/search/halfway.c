#include "search/halfway.h"

#include <math.h>

#include "search/alternative.h"

/* A step has to be shorter by this part. */
#define WORTH 0.002

/* Bytes that a budget of the host leaves, as far as what is on disk can use them. */
static int64_t spare_bytes(const struct workload *w, const struct limits *limits)
{
    struct forecast f = {0};
    forecast_memory(&f, w, limits);
    int64_t left = f.budget.n_bytes[TIER_HOST] - f.budget.needs[TIER_HOST];
    return MAX(MIN(left, w->n_bytes[TIER_DISK]), (int64_t)0);
}

/* The widest first: what is read earlier waits for nothing. */
static enum status widen(struct workload *w, const struct limits *limits,
                         const struct kernel_times *times, int64_t spare, double now,
                         struct decisions *d, bool *taken)
{
    static const int parts[] = {1, 2, 4, 8};
    for (size_t i = 0; i < ARRAY_LEN(parts) && !*taken; i++) {
        struct decisions wider = *d;
        double worth = (1 - WORTH) * now, then;
        wider.halfway_bytes = MAX(d->halfway_bytes, d->ring_bytes) + spare / parts[i];
        TRY(alternative_with(w, limits, times, &wider, worth, &then));
        *taken = then < worth;
        if (*taken)
            *d = wider;
    }
    return OK;
}

enum status halfway_widen(struct workload *w, const struct limits *limits,
                          const struct kernel_times *times, struct decisions *d)
{
    double now;
    bool taken = false;
    struct set_aside before;
    if (!workload_stage(w, STAGE_TRAIN) || !decisions_use_disk(d) ||
        device_host_reaches(w->device, TIER_DEVICE))
        return OK;
    TRY(alternative_now(w, limits, times, &now));
    int64_t spare = isfinite(now) ? spare_bytes(w, limits) : 0;
    if (spare == 0)
        return OK;
    TRY(workload_set_aside(w, &before));
    enum status status = widen(w, limits, times, spare, now, d, &taken);
    if (taken)
        set_aside_release(&before);
    else
        workload_bring_back(w, &before);
    return status;
}
