/* loader.h: batches of samples, made ready by a thread while the step before is running.
 *
 * Each epoch visits every sample of a dataset once, in an order that is a function of (seed,
 * epoch); row r of batch b on rank k is the sample at place (b * rows + r) * n_ranks + k of that
 * order. What is left over at the end of an epoch and does not fill a batch on every rank is
 * dropped, or, with keep_last, filled up with rows that do not count.
 *
 *     struct loader *l;
 *     TRY(loader_open(&l, &dataset, &options));
 *     TRY(loader_start(l, ring, loader_ring_bytes(&options)));   // ring: part of the memory plan
 *     for (;;) {
 *         TRY(loader_next(l, &batch));
 *         ... use it ...
 *         loader_release_slot(l);
 *     }
 *     loader_free(l);
 *
 * Nothing is allocated between loader_start() and loader_stop(). All functions are for one thread,
 * the one that trains.
 */
#ifndef SNUG_DATA_LOADER_H
#define SNUG_DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

enum loader_split {
    SPLIT_ALL,   /* every sample */
    SPLIT_TRAIN, /* without the last val_set_size samples */
    SPLIT_EVAL,  /* only those */
};

struct loader_options {
    struct batch batch; /* what a batch on this rank is: no data */
    enum loader_split split;
    double val_set_size; /* below 1: part of the samples; from 1 on: their number */
    int shuffle;
    uint64_t seed;
    int keep_last; /* the last batch of an epoch is filled up, not dropped */
    int64_t rank, n_ranks;
    int64_t n_slots; /* batches in the ring, at least 1 */
    /* Above 0: samples of about one length come together (length_order.h), so many batches being a
     * step; batches then say how long the longest sample of their step is. */
    int64_t group_batches;
};

/* Where a run stands: everything up to here has been released. Plain data: checkpoints store it as
 * it is. `next_sample` counts places in the epoch's order over all ranks, so a run can go on with
 * another batch size. */
struct loader_cursor {
    uint64_t seed;
    int64_t epoch, next_sample;
    int64_t n_samples, sample_size; /* of the data the position belongs to */
};

struct loader;

/* ERR_DATA when there is too little for a batch: the message says what would help. What the dataset
 * reads from must outlive the loader. */
enum status loader_open(struct loader **out, const struct dataset *data,
                        const struct loader_options *options) MUST_CHECK;
void loader_free(struct loader *l); /* stops it first */

/* What it reads from. */
const struct dataset *loader_dataset(const struct loader *l);
int64_t loader_n_samples(const struct loader *l); /* of the split, over all ranks */
int64_t loader_n_batches(const struct loader *l); /* of a whole epoch */

/* Bytes that the ring of such a loader takes; 0 when the options make no sense. */
size_t loader_ring_bytes(const struct loader_options *options);

/* Starts the thread from the cursor. `ring` (64-byte aligned) belongs to the loader until stop. */
enum status loader_start(struct loader *l, void *ring, size_t n_bytes) MUST_CHECK;
/* Ends the thread; batches made ready but not released will come again after the next start. */
void loader_stop(struct loader *l);

/* The next batch, as the options describe it. Waits for it. Whatever went wrong in the thread comes
 * out here, with its message. Up to n_slots batches may be held at a time. */
enum status loader_next(struct loader *l, struct batch *batch) MUST_CHECK;
/* Gives back the batch held longest: it counts as consumed, and its memory is filled again. */
void loader_release_slot(struct loader *l);

void loader_get_cursor(const struct loader *l, struct loader_cursor *cursor);
/* Only while stopped. ERR_CHECKPOINT when the cursor belongs to other data. */
enum status loader_set_cursor(struct loader *l, const struct loader_cursor *cursor) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
