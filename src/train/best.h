/* best.h: which evaluation was the best so far, and what follows from it: the weights that a run
 * ends with, when it ends, when its learning rate falls.
 *
 * A metric is one of an evaluation's values by its name, with or without "eval_" before it. The
 * state is plain data that checkpoints keep.
 */
#ifndef SNUG_TRAIN_BEST_H
#define SNUG_TRAIN_BEST_H

#include <jansson.h>

#include "optim/optimizer.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

struct best_state {
    double value;    /* NAN: nothing was evaluated yet */
    int64_t step;    /* of that evaluation */
    int64_t n_worse; /* evaluations in a row that were no better, as early stopping counts them */
    struct plateau_state plateau;
};

/* Is any of it wanted? */
bool best_is_wanted(const struct config *cfg);
/* ERR_CONFIG when evaluations of the session have no such metric. */
enum status best_check(const struct session *s) MUST_CHECK;

struct best_state best_begin(const struct config *cfg);
/* Takes an evaluation in; true when it is the best so far. One that was due also counts for early
 * stopping and for the learning rate; one that merely ends a run does not. */
bool best_take(struct best_state *b, const struct config *cfg, const struct evaluation *e,
               int64_t step, bool due);
/* Whether early stopping has had enough. */
bool best_stops(const struct best_state *b, const struct config *cfg);

/* New reference; NULL when out of memory. */
json_t *best_json(const struct best_state *b);
/* Of a checkpoint of before there is nothing: then b stays as it is. */
enum status best_read(struct best_state *b, const json_t *o) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
