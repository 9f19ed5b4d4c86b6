/* reference.h: what a network says of its data before it is trained, for tasks that compare with
 * that (task.h: has_reference).
 *
 * One pass over the samples, in the run's own arenas and budget, by a program without the adapter:
 * no second model is ever there. The numbers are kept in output_dir (reference-train,
 * reference-eval), under a key made of the samples and of the weights that the run begins with; a
 * run that is resumed takes them from there.
 */
#ifndef SNUG_TRAIN_REFERENCE_H
#define SNUG_TRAIN_REFERENCE_H

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once the session has started, before a loader does; nothing where the task has no reference.
 * `untrained`: the weights are those that the run begins with. ERR_CHECKPOINT where they are not,
 * they were trained themselves, and the numbers are not kept either. */
enum status reference_fill(struct session *s, bool untrained) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
