/* phase_run.h: what predictive phases do between two steps: snapshots, jumps, jumps undone. */
#ifndef SNUG_TRAIN_PHASE_RUN_H
#define SNUG_TRAIN_PHASE_RUN_H

#include "train/jump.h"
#include "train/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* After a step of `state` with this loss (NAN: it updated nothing) and gradient norm. *happened:
 * there is something to tell, and r is filled in. Without phases it does nothing. */
enum status phase_run_after_step(struct stepper *x, struct train_state *state, double loss,
                                 double grad_norm, struct jump_record *r,
                                 bool *happened) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
