/* dynamic_batch.h: `dynamic_batch`: a micro-batch that follows the memory there is.
 *
 * Nothing is tried out: how much a micro-batch needs and how long a step takes with it is planned.
 * Steps are counted from the beginning of the run, so that one that is resumed looks when the other
 * would have.
 */
#ifndef SNUG_TRAIN_DYNAMIC_BATCH_H
#define SNUG_TRAIN_DYNAMIC_BATCH_H

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DYNAMIC_READINGS = 1000 }; /* the most that dynamic_batch_smooth asks for */

struct dynamic_batch {
    float uses[DYNAMIC_READINGS]; /* shares of what there is, of this look */
    int n_uses;
};

enum dynamic_wish { DYNAMIC_NONE, DYNAMIC_GROW, DYNAMIC_SHRINK };

/* Does a look after this step need a reading? */
bool dynamic_reads(const struct config *cfg, int64_t step);
/* With the share of what there is that the run takes now. */
enum dynamic_wish dynamic_look(struct dynamic_batch *d, const struct config *cfg, int64_t step,
                               double use);

/* The next size in that direction (1, -1) that cuts a step into whole micro-batches; 0: there is
 * none that the config allows. */
int64_t dynamic_neighbour(const struct config *cfg, int64_t batch, int direction);

/* The micro-batch with which a step is predicted to be fastest within limits. */
struct dynamic_choice {
    int64_t batch; /* 0: none fits */
    double step_s;
    struct decisions decisions; /* in the pool */
    bool was_planned;           /* beforehand (engine/ahead.h) */
};
/* By the plans that were made beforehand, where there are such; the rest is searched for now. The
 * thread that makes them is stopped. */
enum status dynamic_choose(struct session *s, const struct limits *limits, struct pool *pool,
                           struct dynamic_choice *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
