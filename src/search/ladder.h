/* ladder.h: decisions with which a workload fits its budgets.
 *
 * What is configured is tried first. If it does not fit, what leaves the device grows along the
 * extents of decisions.h, one after the other, until everything fits; then each candidate takes
 * back what there is room for after all, and the one with the shortest predicted step is chosen.
 */
#ifndef SNUG_SEARCH_LADDER_H
#define SNUG_SEARCH_LADDER_H

#include "search/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the ladder may not touch. */
struct ladder_limits {
    bool fixed[EXTENT_COUNT]; /* this extent stays what it is */
};

/* *d: what is configured; then what was chosen, or where nothing fits what ladder_least gives. The
 * workload's plans and programs are those of *d. Kernels not measured so far are predicted
 * by rates (times NULL: all). */
enum status ladder_climb(struct workload *w, const struct limits *limits,
                         const struct ladder_limits *bounds, const struct kernel_times *times,
                         struct decisions *d) MUST_CHECK;

/* *d: what is configured; then, within the bounds, the way of running it that takes the least of
 * the device's memory and no more of the host's than there is. Nothing is fetched ahead. */
enum status ladder_least(struct workload *w, const struct limits *limits,
                         const struct ladder_limits *bounds, struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
