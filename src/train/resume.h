/* resume.h: what a run must remember to go on exactly: saved with every checkpoint, read back.
 *
 * Weights, optimizer states and masters are storage and go as tensors; everything else is here:
 * step, micro-step counter (the random generator's position), tokens seen, data cursor, the best
 * evaluation, the phase, the run's settings, log history. Snapshots of the weights that a jump will
 * go by are tensors too; probe batches are read again.
 */
#ifndef SNUG_TRAIN_RESUME_H
#define SNUG_TRAIN_RESUME_H

#include "train/best.h"
#include "train/control.h"
#include "train/history.h"
#include "train/phases.h"
#include "train/run_start.h"

#ifdef __cplusplus
extern "C" {
#endif

struct train_state {
    int64_t step;          /* optimizer steps done */
    int64_t n_updates;     /* of these: steps without any label update nothing */
    int64_t n_micro_steps; /* done; the draw counter of dropout */
    int64_t n_units;       /* (tokens, in language modelling) that counted in a loss */
    int64_t saved_step;    /* step of the newest checkpoint; -1: none */
    struct best_state best;
    struct phase_state phases;
    struct control_state control;
    struct history history;
};

enum status train_state_init(struct train_state *t, const struct config *cfg) MUST_CHECK;
void train_state_release(struct train_state *t);

/* Saves checkpoint-<step> under output_dir; *path (freed by the caller) names it. */
enum status train_save(struct session *s, const struct run_start *start, struct train_state *t,
                       double epoch, char **path) MUST_CHECK;

/* Restores weights, states, cursor and *t from the checkpoint that the run starts from; does
 * nothing when it starts from the beginning. The loader must not be running. */
enum status train_resume(struct session *s, const struct run_start *start,
                         struct train_state *t) MUST_CHECK;

/* The weights of the best checkpoint take the place of the last ones; does nothing where there is
 * none, or the last one is it. */
enum status train_load_best(struct session *s, const struct train_state *t) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
