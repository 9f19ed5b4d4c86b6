/* plan_trials_run.h: the trials of plan_trials.h in a session that runs.
 *
 * Between two steps, and without a search: decisions of the plans that the first one found are
 * kept, and then those of the plans that ran. What does not fit with its addresses is searched for
 * by its rank.
 */
#ifndef SNUG_TRAIN_PLAN_TRIALS_RUN_H
#define SNUG_TRAIN_PLAN_TRIALS_RUN_H

#include "train/plan_trials.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* That another plan runs from here on, or that there will be no other. */
struct trials_record {
    int64_t step; /* after which it came */
    int rank;     /* of the plan that runs now */
    bool changed;
    bool was_planned;               /* nothing was searched for */
    bool is_settled;                /* and runs until the end */
    const struct plan_trial *tried; /* [n_tried] */
    int n_tried;
    const struct forecast *forecast; /* of the programs that run now */
    double planning_s, carrying_s;   /* where it was changed */
};

struct plan_trials_run {
    struct plan_trials trials;
    struct decisions listed[MAX_FINDINGS]; /* by rank, of those that were found */
    int n_listed;
    struct decisions known[MAX_FINDINGS]; /* of those that were changed from */
    int n_known;
    struct pool pool; /* of these */
};

/* The plan that runs is the best by the model of time. Where the config wants no trials, or the
 * search had no choice, there are none. */
void plan_trials_run_init(struct plan_trials_run *x, const struct session *s);
void plan_trials_run_release(struct plan_trials_run *x); /* also of one that is all zero */

/* Makes the change that is wanted, if any is. Where it cannot be made, the session goes on as it
 * was, or with another plan that is wanted then. An error only where the session is lost. To be
 * called when no update is pending. */
enum status plan_trials_run_follow(struct plan_trials_run *x, struct session *s,
                                   enum trials_wish wish, struct trials_record *r) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
