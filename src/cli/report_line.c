/* report_line.c: lines of reports that keep to the width of the terminal. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

/* Bytes of `text` that fit into n_columns characters, ending before a space where there is one. */
static size_t fitting(const char *text, int n_columns)
{
    size_t at = 0, space = 0;
    for (int n = 0; text[at]; at++) {
        n += ((unsigned char)text[at] & 0xC0) != 0x80; /* a character's first byte */
        if (n > n_columns)
            return space > 0 ? space : at;
        if (text[at] == ' ')
            space = at;
    }
    return at;
}

void show_line(int indent, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    int n_columns = log_columns() > 0 ? log_columns() : (int)sizeof(text);
    if (n_columns < 3 * indent)
        indent = 2; /* no room to waste */
    size_t n = fitting(text, n_columns);
    log_info("%.*s", (int)n, text);
    for (const char *rest = text + n; *rest; rest += n) {
        rest += *rest == ' ';
        n = fitting(rest, n_columns > 2 * indent ? n_columns - indent : n_columns);
        log_info("%*s%.*s", indent, "", (int)n, rest);
    }
}
