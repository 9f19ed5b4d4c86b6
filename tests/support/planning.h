/* planning.h: what a search makes of a budget of device memory, where all else is plenty and free
 * to choose. */
#ifndef SNUG_TESTS_PLANNING_H
#define SNUG_TESTS_PLANNING_H

#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the device that the programs of the workload need. */
int64_t planned_needs(const struct workload *w);

/* Seconds of a step in that much memory; HUGE_VAL: nothing fits. */
double planned_seconds(struct workload *w, int64_t n_bytes);

/* The same where the search may not touch all: these extents stay 0. */
double planned_within(struct workload *w, int64_t n_bytes, const struct search_bounds *bounds);

/* What search_least comes to. */
int64_t planned_least(struct workload *w);

#ifdef __cplusplus
}
#endif
#endif
