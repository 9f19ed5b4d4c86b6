/* feed.h: the way of a batch into a program: its items go to the inputs of their names.
 *
 * Who goes where is found once, when the program is loaded; an item that no input takes and an
 * input that nobody fills are errors there.
 */
#ifndef SNUG_TRAIN_FEED_H
#define SNUG_TRAIN_FEED_H

#include "data/batch.h"
#include "plan/group.h"
#include "run/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct feed {
    struct executor *x; /* borrowed */
    int n_items;
    /* Per micro-batch of a group, in the order of the batch's items; NULL: it goes nowhere. */
    void *inputs[GROUP_MOST][BATCH_MOST_ITEMS];
    int64_t row_bytes[BATCH_MOST_ITEMS]; /* of the last axis, as much of it as the program takes */
};

/* `others`, NULL-terminated: inputs that the caller fills. ERR_INTERNAL names what does not fit. */
enum status feed_init(struct feed *f, struct executor *x, int handle, const struct program *p,
                      const struct batch *description, const char *const *others) MUST_CHECK;

/* The same for a program that takes some of the items only. */
enum status feed_init_some(struct feed *f, struct executor *x, int handle, const struct program *p,
                           const struct batch *description) MUST_CHECK;

/* Into the inputs of micro-batch m of a group, 0 where there are no groups. */
void feed_copy(const struct feed *f, const struct batch *b, int m);

#ifdef __cplusplus
}
#endif
#endif
