/* run_settings.h: what determines the steps of a run: kept in its checkpoints, and held against the
 * config and data that one is resumed with.
 *
 *     {"config": {...},                                 every key, as resolved
 *      "data": {"tokens": 9000, "hash": "..."},         which tokens and labels, wherever they lie
 *      "precision": "...", "device": "cpu",             what the keys came to here
 *      "steps": 500}                                    of the whole run: the schedule's length
 *
 * The model is not among them: a checkpoint is one, and checkpoint_check_model compares it.
 */
#ifndef SNUG_TRAIN_RUN_SETTINGS_H
#define SNUG_TRAIN_RUN_SETTINGS_H

#include <jansson.h>

#include "io/checkpoint.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a session with its data open; n_steps is the run's length. Reads through the training data:
 * ERR_DATA when nothing in it is a label. The caller drops *out. */
enum status run_settings_make(const struct session *s, int64_t n_steps, json_t **out) MUST_CHECK;

/* Holds the session's settings against those of a checkpoint, where it has them. What changes no
 * step is named in a line of the log. What does is ERR_CONFIG, every difference named, unless the
 * config allows it: then it is named in a warning and *changed is true. */
enum status run_settings_compare(const struct session *s, const json_t *now,
                                 const struct checkpoint *c, bool *changed) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
