/* log.h: what people read, on stderr. Machine output (--json) goes to stdout and never here.
 * Nothing is written until a program says how much is wanted. */
#ifndef SNUG_BASE_LOG_H
#define SNUG_BASE_LOG_H

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_QUIET, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* One whole line each; a newline is added. A progress bar on screen is cleared first and
 * redrawn by its owner's next update. */
void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_debug(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Status text that stays on the last line of a terminal (no-op when stderr is not one). */
void log_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
int log_is_terminal(void);
int log_columns(void); /* width of the terminal now; 80 when it does not say; 0: not a terminal */
int log_use_colour(void); /* terminal, and neither NO_COLOR nor log_set_colour(0) */
void log_set_colour(int on);

#ifdef __cplusplus
}
#endif
#endif
