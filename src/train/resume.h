/* resume.h: what a run must remember to go on exactly: saved with every checkpoint, read back.
 *
 * Weights, optimizer states and masters are storage and go as tensors; everything else is here:
 * step, micro-step counter (the random generator's position), tokens seen, data cursor, log
 * history.
 */
#ifndef SNUG_TRAIN_RESUME_H
#define SNUG_TRAIN_RESUME_H

#include <jansson.h>

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

struct step_record;

struct train_state {
    int64_t step;          /* optimizer steps done */
    int64_t n_micro_steps; /* done; the draw counter of dropout */
    int64_t n_tokens;      /* that counted in a loss */
    int64_t saved_step;    /* step of the newest checkpoint; -1: none */
    json_t *log_history;   /* array in the form of HF's trainer_state.json */
};

enum status train_state_init(struct train_state *t) MUST_CHECK;
void train_state_release(struct train_state *t);
enum status train_state_note_step(struct train_state *t, const struct step_record *r) MUST_CHECK;
enum status train_state_note_eval(struct train_state *t, int64_t step, double epoch, double loss,
                                  double seconds) MUST_CHECK;

/* Saves checkpoint-<step> under output_dir; *path (freed by the caller) names it. */
enum status train_save(struct session *s, struct train_state *t, double epoch,
                       char **path) MUST_CHECK;

/* Restores weights, states, cursor and *t as resume_from_checkpoint says; a fresh run when it says
 * nothing. The loader must not be running. */
enum status train_resume(struct session *s, struct train_state *t) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
