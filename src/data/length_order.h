/* length_order.h: samples in an order in which those of about one length come together.
 *
 * The idea of transformers' LengthGroupedSampler: the order of an epoch (shuffled, or as the data
 * has it) is cut into stretches of 50 steps (fewer where there is little data), each sorted by
 * length, longest first; the longest sample of all comes first, so that what a run needs most of is
 * needed at once. A function of (seed, epoch) and the lengths.
 */
#ifndef SNUG_DATA_LENGTH_ORDER_H
#define SNUG_DATA_LENGTH_ORDER_H

#include "data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

struct length_order_options {
    const struct dataset *data; /* which knows lengths */
    int64_t first_sample, n_samples;
    int64_t batch_samples, n_batches; /* of an epoch */
    int64_t step_batches;             /* batches of an optimizer step */
    uint64_t seed;
    int shuffle;
};

struct length_order {
    struct length_order_options options;
    int32_t *lengths; /* of each sample */
    int64_t *samples; /* the order of `epoch`, -1: of none yet */
    int64_t epoch;
};

enum status length_order_init(struct length_order *o,
                              const struct length_order_options *options) MUST_CHECK;
void length_order_release(struct length_order *o); /* of a zeroed one too */

/* Makes the order of an epoch, where it is not there; the longest sample of the step that the batch
 * from place `next` on belongs to. A step that reaches into another epoch is as long as any. */
int64_t length_order_step(struct length_order *o, int64_t epoch, int64_t next);

#ifdef __cplusplus
}
#endif
#endif
