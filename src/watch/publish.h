/* publish.h: a run's state as its observers see it, into output_dir/.snug-live (live.h).
 *
 * A folder that cannot take the files makes a warning, not the end of a run: nobody can watch it
 * then, and that is all.
 */
#ifndef SNUG_WATCH_PUBLISH_H
#define SNUG_WATCH_PUBLISH_H

#include "train/trainer.h"
#include "watch/live.h"

#ifdef __cplusplus
extern "C" {
#endif

struct publisher {
    struct live *live; /* NULL: nobody can watch */
    struct session *session;
};

/* The engine has started: its programs are loaded. `id` is the run's. */
void publisher_open(struct publisher *p, struct session *s, const char *id, const char *precision);
struct train_observer publisher_observer(struct publisher *p);
/* How the run has ended. Keeps the thread's error message. */
void publisher_end(struct publisher *p, enum status how);
void publisher_close(struct publisher *p); /* safe on a zeroed one */

#ifdef __cplusplus
}
#endif
#endif
