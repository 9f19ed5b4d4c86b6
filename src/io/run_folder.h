/* run_folder.h: whose folder output_dir is: one run's at a time, and of one run only.
 *
 *     struct run_folder f;
 *     TRY(run_folder_open(&f, output_dir));               made and locked, or refused
 *     TRY(run_folder_find_other(&f, id, &what));          what another run has left in it
 *     TRY(run_folder_clear(&f));                          if it may be overwritten
 *     TRY(run_folder_claim(&f, id));                      from here on it is this run's
 *     ... train ...
 *     run_folder_close(&f);
 *
 * A run has an id, made when it starts from the beginning and kept over resumes. It begins with the
 * time, so that ids compare as the runs came: "20261115-170912-403127-8f3ac21b".
 *
 * The lock is flock(2) on output_dir/.snug-run, which also says the id and the process of the run
 * the folder belongs to. The kernel gives it back however the process ends. Where the file system
 * has no locks, a warning says so and the run goes on without one.
 */
#ifndef SNUG_IO_RUN_FOLDER_H
#define SNUG_IO_RUN_FOLDER_H

#include <stdbool.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ids ---- */

enum { RUN_ID_TEXT = 32 }; /* date, time to the microsecond, eight random digits, and a NUL */

/* An id that comes after `after` ("": any), whatever the clock says: that one may have been made by
 * a machine whose clock is ahead. */
enum status run_id_make(char out[RUN_ID_TEXT], const char *after) MUST_CHECK;
/* An id as run_id_make gives it; NULL is none. */
bool run_id_is_valid(const char *id);

/* ---- the folder ---- */

#define RUN_FOLDER_METRICS "metrics.jsonl"

struct run_folder {
    char *path;
    int lock;                /* file descriptor; -1: closed */
    char owner[RUN_ID_TEXT]; /* the run that claimed it last; "": none did */
};

/* Makes the folder if need be. ERR_USAGE when a run is at work in it: the message names its
 * process. On failure there is nothing to close. */
enum status run_folder_open(struct run_folder *f, const char *path) MUST_CHECK;
void run_folder_close(struct run_folder *f); /* safe on a zeroed one */

/* *what (freed by the caller with mem_free) = something in the folder that belongs to a run with
 * another id: the newest checkpoint ("checkpoint-30"), or RUN_FOLDER_METRICS when that is all;
 * NULL: nothing does. Checkpoints that Snug did not write do not count. */
enum status run_folder_find_other(const struct run_folder *f, const char *id,
                                  char **what) MUST_CHECK;

/* Removes the checkpoints and metrics.jsonl that Snug wrote, and nothing else. A metrics.jsonl of
 * somebody else's is renamed. */
enum status run_folder_clear(const struct run_folder *f) MUST_CHECK;

/* Whether a run is at work in a folder; false also where there is none, or no lock to tell. */
bool run_folder_is_busy(const char *path);

/* Notes that the folder belongs to this run. */
enum status run_folder_claim(struct run_folder *f, const char *id) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
