/* deferral.h: are updates better made in the next step?
 *
 * Where every update waits for the norm of all gradients, and what it works on is away from the
 * device, the updates of a step end it with nothing to compute beside the copies. Deferred into the
 * next step's forward pass they hide, at the price of gradients that are there for longer.
 */
#ifndef SNUG_SEARCH_DEFERRAL_H
#define SNUG_SEARCH_DEFERRAL_H

#include "search/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *d: decisions whose programs the workload has. Defers the updates where that fits and is
 * predicted to be faster; gradients_may_leave: so that it fits, all gradients may go to the host.
 * The workload's plans and programs are those of *d afterwards too. */
enum status deferral_try(struct workload *w, const struct limits *limits,
                         const struct kernel_times *times, bool gradients_may_leave,
                         struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
