/* fields.c: see fields.h. */
#include "base/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { GAP = 2 }; /* spaces between fields */

void fields_add(struct fields *f, int rank, const char *fmt, ...)
{
    BUG_ON(f->n == FIELDS_MAX);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(f->items[f->n].text, FIELD_TEXT, fmt, args);
    va_end(args);
    f->items[f->n++].rank = rank;
}

/* Characters of all fields up to a rank. */
static int width(const struct fields *f, int rank)
{
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        if (f->items[i].rank <= rank)
            n += (n > 0 ? GAP : 0) + (int)strlen(f->items[i].text);
    }
    return n;
}

/* The highest rank below another; 0: there is none. */
static int rank_below(const struct fields *f, int rank)
{
    int below = 0;
    for (int i = 0; i < f->n; i++) {
        if (f->items[i].rank < rank && f->items[i].rank > below)
            below = f->items[i].rank;
    }
    return below;
}

void fields_fit(const struct fields *f, int n_columns, struct str *out)
{
    int rank = rank_below(f, INT32_MAX), lower;
    while (width(f, rank) > n_columns && (lower = rank_below(f, rank)) > 0)
        rank = lower;
    const char *gap = "";
    for (int i = 0; i < f->n; i++) {
        if (f->items[i].rank > rank)
            continue;
        str_addf(out, "%s%.*s", gap, n_columns, f->items[i].text);
        gap = "  ";
    }
}
