/* control_run.h: steps with predicted gradients (control.h), and what they are worth.
 *
 * Two programs beside the one that trains, in the same arena: one adds predictions of a micro-batch
 * to states that the next step begins with, and one says how predictions and true gradients of two
 * probe batches go together. A step's micro-batches are kept in host memory that was planned, since
 * some go through twice.
 */
#ifndef SNUG_TRAIN_CONTROL_RUN_H
#define SNUG_TRAIN_CONTROL_RUN_H

#include "train/step.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STEP_BATCHES_NAME "step batches"

/* Memory of a step's micro-batches, and of what is said of them. */
int64_t control_bytes(const struct session *s, const struct config *cfg);
/* ERR_CONFIG where gradients of the session's network cannot be predicted. */
enum status control_check(const struct session *s) MUST_CHECK;

/* What a step with predicted gradients costs beside a plain one, in FLOPs of its passes; 0: there
 * are none. */
double control_cost(const struct session *s);

/* Measures on the probe batches with the weights as they are. Fills in r but for the step. */
enum status control_measure(struct stepper *x, struct control_record *r) MUST_CHECK;

/* As step_run, most gradients predicted. */
enum status control_step(struct stepper *x, struct train_state *state, double lr) MUST_CHECK;
/* The same with a draw that is given: the first n_true of order[] have true gradients. NULL: as it
 * falls. Where batches without labels leave fewer than there are, it is as it falls. */
enum status control_step_drawn(struct stepper *x, struct train_state *state, double lr,
                               const int64_t *order) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
