#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static enum log_level threshold = LOG_QUIET; /* a library does not print: its program says */
static int colour = -1;                      /* -1: not decided yet */
static int progress_shown; /* guarded by the lock of stderr: other threads than the one that trains
                              log too */

void log_set_level(enum log_level level)
{
    threshold = level;
}

enum log_level log_get_level(void)
{
    return threshold;
}

int log_is_terminal(void)
{
    return isatty(STDERR_FILENO);
}

int log_columns(void)
{
    struct winsize size;
    if (!log_is_terminal())
        return 0;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void log_set_colour(int on)
{
    colour = on;
}

int log_use_colour(void)
{
    return colour != 0 && log_is_terminal();
}

static void clear_progress(void)
{
    if (progress_shown)
        (void)fputs("\r\033[K", stderr);
    progress_shown = 0;
}

static void line(enum log_level level, const char *prefix, const char *fmt, va_list args)
{
    if (level > threshold)
        return;
    flockfile(stderr); /* a line stays whole */
    clear_progress();
    (void)fputs(prefix, stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    funlockfile(stderr);
}

#define DEFINE_LOG(name, level, plain, coloured)                         \
    void name(const char *fmt, ...)                                      \
    {                                                                    \
        va_list args;                                                    \
        va_start(args, fmt);                                             \
        line(level, log_use_colour() ? (coloured) : (plain), fmt, args); \
        va_end(args);                                                    \
    }

DEFINE_LOG(log_error, LOG_ERROR, "error: ", "\033[1;31merror:\033[0m ")
DEFINE_LOG(log_warn, LOG_WARN, "warning: ", "\033[1;33mwarning:\033[0m ")
DEFINE_LOG(log_info, LOG_INFO, "", "")
DEFINE_LOG(log_debug, LOG_DEBUG, "debug: ", "\033[2mdebug:\033[0m ")

void log_progress(const char *fmt, ...)
{
    if (threshold < LOG_INFO || !log_is_terminal())
        return;
    va_list args;
    va_start(args, fmt);
    flockfile(stderr);
    (void)fputs("\r\033[K", stderr);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fflush(stderr);
    progress_shown = 1;
    funlockfile(stderr);
}
