/* probe.h: a few training batches whose losses say whether other weights are better.
 *
 * They are read once and stay in host memory that was planned: always the same, so that losses
 * before and after can be compared batch by batch. They are the last ones of the first epoch's
 * order: no step of a run that ends before has trained on them. Their losses come from a
 * forward-only program that shares the arena with the one that trains.
 */
#ifndef SNUG_TRAIN_PROBE_H
#define SNUG_TRAIN_PROBE_H

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PROBE_NAME "probe batches"

/* Memory of the batches and of their losses. */
int64_t probe_bytes(const struct session *s);

/* Reads them, while the training loader does not run. Nothing where the session has no probe. */
enum status probe_fill(struct session *s) MUST_CHECK;

/* The loss of each batch with the weights as they are. No update may be pending. */
enum status probe_run(struct session *s, double *losses) MUST_CHECK;

/* Batch i, where it is kept. */
struct batch probe_batch(const struct session *s, int64_t i);

/* Room for two sets of losses. */
double *probe_losses(const struct session *s);

/* How much less the losses are: the mean of after - before, and its standard error. */
struct probe_difference {
    double before; /* mean */
    double mean, error;
};
struct probe_difference probe_compare(const double *before, const double *after, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
