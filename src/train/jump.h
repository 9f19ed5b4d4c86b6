/* jump.h: weights that jump along the path they have come, and back where that was no good.
 *
 * Snapshots are f32 copies of what is trained (engine/widest.h), in host memory that was planned.
 * The last one is taken where the jump begins: it is what is put back, to the bit. Optimizer states
 * are not touched by a jump that is rejected.
 */
#ifndef SNUG_TRAIN_JUMP_H
#define SNUG_TRAIN_JUMP_H

#include "engine/weights.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SNAPSHOTS_NAME "snapshots"

/* Memory beside the copies. */
int64_t jump_bytes(void);

enum jump_outcome { JUMP_REJECTED, JUMP_ACCEPTED, JUMP_WITHHELD, JUMP_UNDONE };

struct jump_record {
    int64_t step; /* after which */
    enum jump_outcome outcome;
    const char *method;
    double n_steps;           /* asked for */
    double length;            /* accepted; 0: none */
    int n_tried;              /* lengths */
    double probe_loss;        /* before */
    double difference, error; /* of the length that was tried last */
    double seconds;
};
const char *jump_outcome_name(enum jump_outcome o);

/* The weights into a slot. */
enum status jump_snapshot(struct session *s, int slot) MUST_CHECK;

/* Tries to jump by n_steps, by half of them, by a quarter. Fills in r but for the step. */
enum status jump_try(struct session *s, double n_steps, struct jump_record *r) MUST_CHECK;

/* Back to the last snapshot. */
enum status jump_undo(struct session *s) MUST_CHECK;

/* Adds the snapshots of these slots to the states of a checkpoint. */
enum status jump_add_states(const struct session *s, unsigned slots,
                            struct engine_states *states) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
