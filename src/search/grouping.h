/* grouping.h: how many micro-batches of a step go through the network together (plan/group.h).
 *
 * One more decision, made when it is known what is away without them: groups pay by fetching that
 * less often. They take memory, so each size has a search of its own.
 */
#ifndef SNUG_SEARCH_GROUPING_H
#define SNUG_SEARCH_GROUPING_H

#include "search/known.h"
#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

struct foresight;

/* A search for decisions with a given group. */
struct group_search {
    struct workload *w;
    const struct limits *limits;
    const struct search_bounds *bounds;
    const struct kernel_times *times;
    struct known *known;         /* what all of them come to */
    struct foresight *foresight; /* of all of them; NULL: there is none */
    /* below: seconds that a step has to take less than; it gives up where it sees that it will
     * not. *found: the programs of *d fit; else they are none in particular. */
    enum status (*plan)(const struct group_search *x, double below, struct decisions *d,
                        struct search_report *report, bool *found);
};

/* Groups against micro-batches one at a time. */
struct grouping {
    const struct group_search *search;
    const struct decisions *configured; /* what a search begins with */
    double against;                     /* seconds that they were not faster than; 0: not tried */
    bool won;                           /* the workload has their programs */
    double seconds;                     /* of the fastest; 0: there is none. Else these are its: */
    struct decisions d;
    struct search_report report;
};

/* d: what was found for micro-batches one at a time, which is what the workload has programs of,
 * with addresses or without; is_last: nothing faster will be. Where the step is predicted to be
 * shorter with groups, by enough or against the last of these, they win, and the workload has
 * theirs. What has lost is not tried again, but against what is slower. */
enum status grouping_try(struct grouping *g, const struct decisions *d, bool is_last) MUST_CHECK;

/* Seconds that micro-batches one at a time may take: what takes longer has lost against the fastest
 * groups so far. */
double grouping_bar(const struct grouping *g);
/* These win: the workload has theirs, with addresses. */
enum status grouping_take(struct grouping *g) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
