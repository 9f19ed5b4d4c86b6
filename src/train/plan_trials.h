/* plan_trials.h: which of the best few plans of a budget is the fastest, by the clock.
 *
 * The planner ranks plans by a model of time that is wrong by a few percent, and the best few are
 * closer than that. Plans give the same bits and a run can change from one to the next, so it runs
 * each twice and goes on with the fastest. The second time is in the opposite order (1 2 3 3 2 1):
 * a device that gets slower as it gets warm slows all of them alike. Those that come close to the
 * fastest then have another round, there and back, and the closest of these a third: turns of one
 * plan differ by half a percent, and the luckiest of five is not the fastest. Every turn but the
 * very first begins with a change, one to the plan that runs where it has two in a row: the first
 * seconds after a change differ from later ones by up to two percent, and would count for some
 * plans and not for others.
 *
 *     plan_trials_init     the plans that are worth it
 *     plan_trials_step     a step has taken so long: what now?
 *     plan_trials_changed  the change that was wanted is made
 *     plan_trials_refused  or cannot be
 *
 * Nothing is changed here, and no clock is read: plan_trials_run.h does both.
 */
#ifndef SNUG_TRAIN_PLAN_TRIALS_H
#define SNUG_TRAIN_PLAN_TRIALS_H

#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TRIALS_FIRST = 12, /* steps before all others that do not count: the device is still cool */
    TRIALS_WARM = 6,   /* nor do those after a change: parts are recorded, the device was idle */
    TRIALS_TIMED = 6,  /* the ones after them, whose median does */
    TRIALS_STEPS = TRIALS_WARM + TRIALS_TIMED,
};

/* A plan that runs or has run. */
struct plan_trial {
    int rank;          /* as plan_rank has it */
    double planned_s;  /* a step */
    double measured_s; /* mean of its turns; 0: there was none yet */
    int n_turns;
    bool is_out; /* it was too slow for another round */
};

struct plan_trials {
    int n_plans; /* that are worth a trial: ranks 1 .. n_plans; less than 2: there is none to try */
    bool is_returning; /* all have had a turn of this round that will, and have their second one */
    int n_rounds;      /* that are over */
    struct plan_trial tried[MAX_FINDINGS];
    int n_tried;
    int i_running;                /* of these */
    int i_wanted;                 /* n_tried: one that was not tried yet */
    double seconds[TRIALS_TIMED]; /* of the one that runs */
    int n_steps;                  /* of its turn; below 0: they do not count */
};

enum trials_wish {
    TRIALS_NONE,    /* the run goes on as it is */
    TRIALS_CHANGE,  /* to the plan of plan_trials_wanted; that may be the one that runs */
    TRIALS_SETTLED, /* it goes on with the plan that runs, until its end */
};

/* The best plan runs, and a step of it is planned to take so long; at most n_most are tried, of
 * those that a search has found to be close. */
void plan_trials_init(struct plan_trials *t, const struct search_report *found, int n_most,
                      double planned_s);

/* A step took so many seconds, undisturbed; n_left are to come. */
enum trials_wish plan_trials_step(struct plan_trials *t, double seconds, int64_t n_left);

/* The rank that is wanted, where a change is. */
int plan_trials_wanted(const struct plan_trials *t);
/* What came of it, and what then. */
enum trials_wish plan_trials_changed(struct plan_trials *t, double planned_s);
enum trials_wish plan_trials_refused(struct plan_trials *t);

/* Something else has changed the plan: what was measured is of another budget. */
void plan_trials_end(struct plan_trials *t);

#ifdef __cplusplus
}
#endif
#endif
