/* alternative.h: a plan as it is against another, by programs.
 *
 * What the search has found can be changed in ways that its fast model does not see. Each such
 * change is tried on programs: it is taken where it fits and is predicted to be faster.
 */
#ifndef SNUG_SEARCH_ALTERNATIVE_H
#define SNUG_SEARCH_ALTERNATIVE_H

#include "search/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of a step with the programs as they are; infinite where they do not fit. */
enum status alternative_now(struct workload *w, const struct limits *limits,
                            const struct kernel_times *times, double *seconds) MUST_CHECK;

/* The same with d; where that is not below `worth`, nothing is placed. */
enum status alternative_with(struct workload *w, const struct limits *limits,
                             const struct kernel_times *times, const struct decisions *d,
                             double worth, double *seconds) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
