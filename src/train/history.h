/* history.h: the log of a run that goes into every checkpoint's trainer_state.json, for scripts
 * that plot it, in memory of one size however long the run.
 *
 *     struct history h;
 *     TRY(history_init(&h));
 *     history_add(&h, &(struct history_entry){.step = 1, .loss = 5.1, ...});
 *     json_t *log = history_json(&h);        HF's log_history
 *
 * When it is full, every second step goes, and from then on every second one is noted: a plot keeps
 * its shape. All steps are in metrics.jsonl.
 */
#ifndef SNUG_TRAIN_HISTORY_H
#define SNUG_TRAIN_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HISTORY_MOST = 2048 };

struct history_entry {
    int64_t step;
    double epoch, loss;
    bool is_eval;
    double grad_norm, lr; /* of a step */
    double seconds;       /* of an evaluation */
};

struct history {
    struct history_entry *entries; /* [HISTORY_MOST] */
    size_t n;
    int64_t stride; /* from noted step to noted step; a power of two */
};

enum status history_init(struct history *h) MUST_CHECK;
void history_release(struct history *h);

void history_add(struct history *h, const struct history_entry *e);

/* An array of objects (step, epoch, loss, grad_norm, learning_rate; or eval_loss, eval_runtime);
 * NULL: out of memory. */
json_t *history_json(const struct history *h);

/* What a history holds, and what its JSON and the text of that take for n entries (no more than
 * HISTORY_MOST). */
int64_t history_bytes(void);
int64_t history_json_bytes(int64_t n);

/* Takes up what history_json gave, in place of what h has. Entries that are none are left
 * out: without a step, or with one that no run reaches. */
void history_read(struct history *h, const json_t *log);

#ifdef __cplusplus
}
#endif
#endif
