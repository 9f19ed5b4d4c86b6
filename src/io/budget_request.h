/* budget_request.h: other budgets for a run that is at work, asked for from outside.
 *
 *     asker                                    run, between two steps
 *     output_dir/BUDGET         ── written ──▶ read and removed
 *     output_dir/BUDGET.answer  ◀── written ── changed over, or why not
 *
 * A request is lines: an id, then settings as on a command line ("device_memory=9GiB"). The answer
 * says the id again, "changed" or "refused", and in words what came of it.
 */
#ifndef SNUG_IO_BUDGET_REQUEST_H
#define SNUG_IO_BUDGET_REQUEST_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BUDGET_REQUEST_ID = 48 };

/* BUDGET_SAME: the request says nothing of it. BUDGET_OPEN: what there is ("auto"). */
#define BUDGET_SAME ((int64_t)-2)
#define BUDGET_OPEN ((int64_t)-1)
struct budget_request {
    char id[BUDGET_REQUEST_ID];
    int64_t device_bytes, host_bytes, disk_bytes;
    struct str text; /* the settings, in one line */
};
void budget_request_init(struct budget_request *r);
void budget_request_release(struct budget_request *r);

/* One setting of a request. ERR_USAGE says what one looks like. */
enum status budget_request_set(struct budget_request *r, const char *setting) MUST_CHECK;

/* ---- asking ---------------------------------------------------------------------------------- */

/* Asks the run in a folder, which tells whoever watches it what came of it. */
enum status budget_request_send(const char *folder, struct budget_request *r) MUST_CHECK;

/* Asks the run in a folder and waits for its answer. ERR_USAGE: no run is at work there, or it
 * ended before it answered. ERR_FIT: it refused, and why. *stop (NULL: never): ends the waiting
 * with ERR_INTERRUPTED. */
enum status budget_request_ask(const char *folder, struct budget_request *r,
                               volatile sig_atomic_t *stop, struct str *answer) MUST_CHECK;

/* ---- answering ------------------------------------------------------------------------------- */

/* True when there was one; it is removed from the folder. One that cannot be read is answered. */
bool budget_request_take(const char *folder, struct budget_request *r);
/* A folder that takes no answer leaves the asker waiting; the run goes on. */
void budget_request_answer(const char *folder, const struct budget_request *r, bool changed,
                           const char *text);

#ifdef __cplusplus
}
#endif
#endif
