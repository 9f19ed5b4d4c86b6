/* step.h: one optimizer step: which sections of the train program run, and with which inputs.
 *
 * A program may defer updates: those of a step then run in the next one. Whoever reads weights or
 * states between steps (evaluation, saving), or runs another program in the same arenas, calls
 * step_finish() first.
 */
#ifndef SNUG_TRAIN_STEP_H
#define SNUG_TRAIN_STEP_H

#include "train/resume.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an update is given beside the gradients. */
struct update_inputs {
    double lr;
    int64_t number; /* of the update, from 1 */
};

struct stepper {
    struct session *s;
    int64_t n_labels; /* in the step just done */
    bool has_sums;    /* and its sums are these, not the program's */
    double sums[MODEL_MOST_SUMS];
    int64_t n_run;   /* micro-batches that it has run so far */
    int n_filled;    /* and that wait in the inputs to be run */
    bool is_pending; /* the updates of the last step are still to come */
    struct update_inputs pending;
};

/* What a step has of the unit that the task counts in, labels or not. */
int64_t step_units(const struct session *s);

/* Takes the step's batches from the loader and runs it. Counts micro-steps in `state`. */
enum status step_run(struct stepper *x, struct train_state *state, double lr) MUST_CHECK;
/* A batch, and the micro-step that it counts as: what dropout goes by. */
struct step_batch {
    struct batch batch;
    int64_t draw;
};
/* A step of several micro-batches that are given, at least one, one at a time; the seed is that of
 * each loss. */
enum status step_run_given(struct stepper *x, const struct step_batch *batches, int64_t n,
                           double seed, const struct update_inputs *u) MUST_CHECK;
/* Runs the updates that are still to come. */
enum status step_finish(struct stepper *x) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
