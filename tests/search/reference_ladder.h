/* reference_ladder.h: the planner of before, to hold the search against: fixed rungs of what leaves
 * the device, taken back as far as there is room, the fastest of them chosen. Whole blocks only.
 */
#ifndef SNUG_TESTS_REFERENCE_LADDER_H
#define SNUG_TESTS_REFERENCE_LADDER_H

#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of a step by the best of the rungs that keep the limits; HUGE_VAL: none does. */
enum status reference_ladder(struct workload *w, const struct limits *limits, struct decisions d,
                             double *seconds) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
