#include "search/alternative.h"

#include <math.h>

enum status alternative_now(struct workload *w, const struct limits *limits,
                            const struct kernel_times *times, double *seconds)
{
    struct forecast f = {0};
    *seconds = HUGE_VAL;
    forecast_memory(&f, w, limits);
    return f.fits ? forecast_seconds(w, times, seconds) : OK;
}

enum status alternative_with(struct workload *w, const struct limits *limits,
                             const struct kernel_times *times, const struct decisions *d,
                             double worth, double *seconds)
{
    TRY(workload_decide(w, d));
    TRY(workload_bound(w));
    TRY(alternative_now(w, limits, times, seconds));
    if (*seconds >= worth)
        return OK;
    TRY(forecast_place(w, limits));
    return alternative_now(w, limits, times, seconds);
}
