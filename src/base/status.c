#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 8192 }; /* a config may have many mistakes at once */

static _Thread_local char message[MESSAGE_BYTES] = "";
static _Thread_local char place[128] = "";

static const struct {
    const char *name;
    const char *meaning;
    int exit_code;
} table[STATUS_COUNT] = {
#define STATUS(name, exit_code, meaning) [name] = {#name, meaning, exit_code},
#include "base/status.def"
#undef STATUS
};

const char *status_name(enum status s)
{
    return table[s].name;
}

const char *status_meaning(enum status s)
{
    return table[s].meaning;
}

int status_exit_code(enum status s)
{
    return table[s].exit_code;
}

const char *status_message(void)
{
    return message;
}

const char *status_place(void)
{
    return place;
}

enum status status_fail(enum status s, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    (void)snprintf(place, sizeof(place), "%s:%d", file, line);
    return s;
}

enum status status_prefix(enum status s, const char *fmt, ...)
{
    char tail[MESSAGE_BYTES];
    memcpy(tail, message, sizeof(tail));

    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n + 2 >= sizeof(message))
        return s;
    size_t used = (size_t)n, n_tail = strlen(tail);
    memcpy(message + used, ": ", 2);
    used += 2;
    n_tail = MIN(n_tail, sizeof(message) - 1 - used); /* a long tail is cut, never the prefix */
    memcpy(message + used, tail, n_tail);
    message[used + n_tail] = '\0';
    return s;
}

void status_bug(const char *file, int line, const char *condition)
{
    (void)fprintf(stderr, "snug: bug at %s:%d: %s\n", file, line, condition);
    abort();
}
