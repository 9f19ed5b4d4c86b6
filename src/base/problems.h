/* problems.h: several mistakes of a user, told as one error.
 *
 *     struct problems p = {0};
 *     for (...)
 *         TRY_GOTO(problems_note(&p, check(item)), out);
 *     status = problems_status(&p);
 *     out: problems_release(&p);
 *
 * Mistakes in what the user wrote (ERR_CONFIG, ERR_UNSUPPORTED) are collected, so that a file with
 * six of them is corrected in one round. Everything else, such as lack of memory, ends the work at
 * once: problems_note hands it back. The message of several errors has one a line; noting such a
 * message adds all of them.
 */
#ifndef SNUG_BASE_PROBLEMS_H
#define SNUG_BASE_PROBLEMS_H

#include "base/status.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBLEMS_SHOWN = 20 }; /* the rest is only counted */

struct problems {
    struct str text; /* one message a line */
    size_t n;        /* also those not shown */
    enum status first;
};

/* Keeps the thread's error when s is a mistake; OK then, and for OK. */
enum status problems_note(struct problems *p, enum status s) MUST_CHECK;
/* OK when there are none; else one error with the messages of all, and the status of the first. */
enum status problems_status(const struct problems *p) MUST_CHECK;
void problems_release(struct problems *p);

#ifdef __cplusplus
}
#endif
#endif
