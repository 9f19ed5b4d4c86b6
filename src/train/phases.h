/* phases.h: which phase a run is in, and what follows from a step; docs/PHASES.md.
 *
 *     Warmup ─▶ Full ─▶ Predict ─▶ Correct ─▶ Full ...
 *                ▲         │ rejected, or withheld
 *                └─────────┘
 *
 * Warmup, Full and Correct are steps of plain training. Full ends with Predict, which takes no
 * step: the weights jump, or stay (jump.h). After a jump that was accepted comes Correct, always
 * followed by Full; while Correct lasts the jump can be undone. Nothing here touches weights.
 */
#ifndef SNUG_TRAIN_PHASES_H
#define SNUG_TRAIN_PHASES_H

#include "config/config.h"
#include "train/divergence.h"

#ifdef __cplusplus
extern "C" {
#endif

enum phase_kind { PHASE_NONE, PHASE_WARMUP, PHASE_FULL, PHASE_CORRECT };

/* "warmup", "full", "correct"; NULL of PHASE_NONE. */
const char *phase_name(enum phase_kind kind);

/* Plain data that checkpoints keep. */
struct phase_state {
    enum phase_kind kind; /* of the next step */
    int64_t n_done;       /* steps of it */
    int64_t n_full;       /* steps that Full has this time */
    int64_t backoff;      /* times full_steps, because jumps were rejected */
    unsigned slots;       /* bit i: snapshot i is in use */
    double confidence;    /* running mean of the share at which jumps were accepted */
    struct divergence divergence;
    int64_t n_accepted, n_rejected; /* jumps */
    int64_t n_withheld;             /* not tried, because the losses gave warning */
    int64_t n_undone;               /* accepted, and taken back in Correct */
    double n_jumped;                /* steps that the accepted ones were worth */
};

struct phase_state phases_begin(const struct config *cfg);

/* What a step is followed by. */
struct phase_action {
    int snapshot;   /* the slot to take one into; -1: none */
    bool undo;      /* the jump before is taken back */
    bool withheld;  /* a jump would have been tried */
    double n_steps; /* above 0: how far to try to jump */
};

/* After a step of plain training; a loss that is NAN is of a step that updated nothing. */
struct phase_action phases_step(struct phase_state *p, const struct config *cfg, double loss,
                                double grad_norm);

/* After a jump was tried over n_steps: it was accepted over `length` of them, 0 if not, and the
 * losses differ by this. */
void phases_jumped(struct phase_state *p, const struct config *cfg, double n_steps, double length,
                   double difference);

/* New reference; NULL when out of memory. */
json_t *phases_json(const struct phase_state *p);
/* Of a checkpoint without phases there is nothing: then p stays as it is. */
enum status phases_read(struct phase_state *p, const struct config *cfg,
                        const json_t *o) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
