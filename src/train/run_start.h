/* run_start.h: how a run begins: from the beginning or from a checkpoint, in a folder of its own.
 *
 *     struct run_start start;
 *     TRY(run_start_open(&start, cfg));              the folder locked, the checkpoint found
 *     TRY_GOTO(session_data(&s), out);
 *     TRY_GOTO(run_start_confirm(&start, &s), out);  nothing was changed on disk before this
 *     ... metrics, weights, train_run(&s, &start, ...) ...
 *     out: run_start_close(&start);
 *
 * A run that starts from the beginning is refused a folder that another run has used, unless
 * overwrite_output_dir. A resumed one keeps its id as long as it goes on where it stopped; it gets
 * a new one when it goes back behind a later checkpoint or goes on with other settings, so that its
 * checkpoints count as the newer ones.
 */
#ifndef SNUG_TRAIN_RUN_START_H
#define SNUG_TRAIN_RUN_START_H

#include "io/checkpoint.h"
#include "io/run_folder.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

struct run_start {
    struct run_folder folder;
    char id[RUN_ID_TEXT];
    char newest[RUN_ID_TEXT];      /* of the runs that have checkpoints in the folder; "": none */
    struct checkpoint *checkpoint; /* NULL: from the beginning */
    bool overwrites;               /* another run's files go when the run is confirmed */
    json_t *settings;              /* NULL until it is confirmed */
};

/* ERR_USAGE (exit code 2) when the folder is in use, or used and not to be overwritten. On failure
 * there is nothing to close. */
enum status run_start_open(struct run_start *r, const struct config *cfg) MUST_CHECK;

/* With the data open: the settings are those of the checkpoint or the differences are accepted, and
 * the folder is this run's. */
enum status run_start_confirm(struct run_start *r, const struct session *s) MUST_CHECK;

void run_start_close(struct run_start *r); /* safe on a zeroed one */

#ifdef __cplusplus
}
#endif
#endif
