/* finding.c: what tells two plans apart, in words. */
#include <string.h>

#include "search/search.h"

static const char separator[] = "; ";

/* The part of a text at *at, and the next one. */
static size_t next_part(const char **at, const char **part)
{
    const char *end = strstr(*at, separator);
    size_t n = end ? (size_t)(end - *at) : strlen(*at);
    *part = *at;
    *at += n + (end ? strlen(separator) : 0);
    return n;
}

static bool has_part(const char *text, const char *wanted, size_t n_wanted)
{
    const char *part;
    while (*text) {
        size_t n = next_part(&text, &part);
        if (n == n_wanted && strncmp(part, wanted, n) == 0)
            return true;
    }
    return false;
}

static void add_parts(const char *text, const char *other, const char *before, struct str *out)
{
    const char *part;
    while (*text) {
        size_t n = next_part(&text, &part);
        if (has_part(other, part, n))
            continue;
        str_add(out, before);
        str_add_n(out, part, n);
        before = separator;
    }
}

void finding_add_difference(const struct finding *f, const struct finding *from, struct str *out)
{
    size_t n = out->n;
    add_parts(f->text, from->text, "", out);
    if (out->n == n)
        add_parts(from->text, f->text, "not: ", out);
    if (out->n == n)
        str_add(out, "the same for other blocks");
}
