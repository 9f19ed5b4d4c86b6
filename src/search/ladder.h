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

/* *d: what is configured; then what was chosen. The workload's plans and programs are those of *d,
 * also where nothing fits (then of what was configured). Kernels not measured so far are predicted
 * by rates (times NULL: all). */
enum status ladder_climb(struct workload *w, const struct limits *limits,
                         const struct ladder_limits *bounds, const struct kernel_times *times,
                         struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
