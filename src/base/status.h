/* status.h: how every fallible function reports.
 *
 * A function that can fail returns enum status and is MUST_CHECK. At the fault it writes
 *
 *     return FAIL(ERR_SHAPE, "softmax: axis %d, rank %d", axis, rank);
 *
 * which records message, file and line in a thread-local error; callers pass it on with
 * TRY(call), or TRY_GOTO(call, out) when they own something that one `out:` label releases.
 * The message is for the user: it names the place and, where there is one, the fix.
 */
#ifndef SNUG_BASE_STATUS_H
#define SNUG_BASE_STATUS_H

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status {
#define STATUS(name, exit_code, meaning) name,
#include "base/status.def"
#undef STATUS
    STATUS_COUNT
};

/* Name ("ERR_SHAPE"), meaning and process exit code of a status. */
const char *status_name(enum status s);
const char *status_meaning(enum status s);
int status_exit_code(enum status s);

/* The last error of this thread: its message and "file:line" of the FAIL. Never NULL. */
const char *status_message(void);
const char *status_place(void);

/* Puts "prefix: " in front of the last message (the file being read, the key being set). */
enum status status_prefix(enum status s, const char *fmt, ...) PRINTF_LIKE(2, 3);

enum status status_fail(enum status s, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
NORETURN void status_bug(const char *file, int line, const char *condition);

#define FAIL(code, ...) status_fail((code), __FILE__, __LINE__, __VA_ARGS__)

#define TRY(call)                         \
    do {                                  \
        enum status try_status_ = (call); \
        if (try_status_ != OK)            \
            return try_status_;           \
    } while (0)

/* Needs `enum status status` in scope; the label releases NULL-initialised locals. */
#define TRY_GOTO(call, label) \
    do {                      \
        status = (call);      \
        if (status != OK)     \
            goto label;       \
    } while (0)

/* A broken invariant of ours, never bad input: prints the place and aborts, in every build. */
#define BUG_ON(cond)                               \
    do {                                           \
        if (cond)                                  \
            status_bug(__FILE__, __LINE__, #cond); \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
