/* micro_batch.h: `per_device_train_batch_size: auto`: how a global batch is cut into micro-batches.
 *
 * The sequences of a step stay the same; in how many parts their gradients are added up changes the
 * order of sums, and so the last bits of a loss. It is chosen once for a run, unless dynamic_batch
 * lets it change: one that is resumed goes on with what its checkpoint says.
 */
#ifndef SNUG_TRAIN_MICRO_BATCH_H
#define SNUG_TRAIN_MICRO_BATCH_H

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is it left open? */
bool micro_batch_is_open(const struct config *cfg);

/* May another follow while the run goes on (dynamic_batch)? */
bool micro_batch_may_change(const struct session *s);

/* The config with so many sequences in a micro-batch, and as many in a step. */
struct config micro_batch_config(const struct config *cfg, int64_t batch);

/* Plans the session with one micro-batch after the other (powers of two that divide the global
 * batch, from one sequence upwards while that helps) and leaves it with the fastest that fits, or
 * where none does with the one that needs the least. Its config is then its own. */
enum status micro_batch_choose(struct session *s,
                               enum status (*plan)(struct session *s)) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
