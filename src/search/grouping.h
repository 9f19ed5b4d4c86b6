/* grouping.h: how many micro-batches of a step go through the network together (plan/group.h).
 *
 * One more decision, made last: what is away is known by then, and groups pay by fetching it less
 * often. They take memory, so each size has a search of its own.
 */
#ifndef SNUG_SEARCH_GROUPING_H
#define SNUG_SEARCH_GROUPING_H

#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A search for decisions with a given group. */
struct group_search {
    struct workload *w;
    const struct limits *limits;
    const struct search_bounds *bounds;
    const struct kernel_times *times;
    /* below: seconds that a step has to take less than; it gives up where it sees that it will
     * not. *found: the programs of *d fit; else they are none in particular. */
    enum status (*plan)(const struct group_search *x, double below, struct decisions *d,
                        struct search_report *report, bool *found);
};

/* *d and *report: what was found for micro-batches one at a time, from `configured`; then, where
 * the step is predicted to be shorter by enough, what was found for groups of them. The workload's
 * programs are those of *d. */
enum status grouping_try(const struct group_search *x, const struct decisions *configured,
                         struct decisions *d, struct search_report *report) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
