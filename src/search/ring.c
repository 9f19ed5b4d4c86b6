/* ring.c: how far ahead a plan fetches that fits as it is configured. */
#include <math.h>

#include "search/search_internal.h"

/* A larger ring is worth its memory when the step is shorter by this part. */
#define WORTH 0.01

struct choice {
    int64_t away; /* bytes that are at home elsewhere */
    struct decisions d;
    double seconds; /* HUGE_VAL: none fits so far */
};

/* Parts of what is away: none of it first, then more and more. */
static const int64_t some[] = {INT64_MAX, 32, 16, 8, 4}, all[] = {INT64_MAX, 1};

/* The ring with which d is fastest, if any fits. */
static enum status try_rings(struct workload *w, const struct limits *limits,
                             const struct kernel_times *times, const struct decisions *d,
                             const int64_t *parts, size_t n_parts, struct choice *best)
{
    for (size_t k = 0; k < n_parts; k++) {
        struct forecast f = {0};
        struct decisions more = *d;
        double seconds;
        more.ring_bytes = best->away / parts[k];
        TRY(workload_decide(w, &more));
        TRY(workload_bound(w));
        forecast_memory(&f, w, limits);
        TRY(forecast_seconds(w, times, &seconds));
        if (f.fits && seconds < (1 - WORTH) * best->seconds) {
            best->seconds = seconds;
            best->d = more;
        }
    }
    return OK;
}

enum status search_choose_ring(struct workload *w, const struct limits *limits,
                               const struct kernel_times *times, struct decisions *d)
{
    struct choice best = {
        .away = w->n_bytes[TIER_HOST] + w->n_bytes[TIER_DISK], .d = *d, .seconds = HUGE_VAL};
    struct decisions fewer = *d;
    fewer.small_bytes = SMALL_BYTES; /* small tensors stay where there is room for them */
    if (!decisions_copy(d)) {        /* inputs are all that there is to fetch */
        TRY(try_rings(w, limits, times, d, all, ARRAY_LEN(all), &best));
    } else {
        TRY(try_rings(w, limits, times, &fewer, some, ARRAY_LEN(some), &best));
        if (best.seconds == HUGE_VAL)
            TRY(try_rings(w, limits, times, d, some, ARRAY_LEN(some), &best));
    }
    *d = best.d;
    TRY(workload_decide(w, d));
    return workload_place(w);
}
