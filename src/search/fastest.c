/* fastest.c: the fastest plan of several searches. */
#include "search/search_internal.h"

enum status fastest_compare(struct fastest *best, struct workload *w, const struct decisions *d,
                            const struct search_report *report, double seconds)
{
    if (!(seconds < best->seconds))
        return OK;
    set_aside_release(&best->programs);
    *best = (struct fastest){.d = *d, .report = *report, .seconds = seconds};
    return workload_set_aside(w, &best->programs);
}

void fastest_take(struct fastest *best, struct workload *w, struct decisions *d,
                  struct search_report *report)
{
    workload_bring_back(w, &best->programs);
    *d = best->d;
    *report = best->report;
}

void fastest_release(struct fastest *best)
{
    set_aside_release(&best->programs);
}
