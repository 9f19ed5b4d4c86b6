/* problems.c: see problems.h. */
#include "base/problems.h"

#include <string.h>

enum status problems_note(struct problems *p, enum status s)
{
    if (s != ERR_CONFIG && s != ERR_UNSUPPORTED)
        return s;
    if (p->n == 0)
        p->first = s;
    for (const char *line = status_message(); line;) {
        const char *end = strchr(line, '\n');
        if (p->n < PROBLEMS_SHOWN) {
            str_add(&p->text, p->n ? "\n" : "");
            str_add_n(&p->text, line, end ? (size_t)(end - line) : strlen(line));
        }
        p->n++;
        line = end ? end + 1 : NULL;
    }
    return str_status(&p->text);
}

enum status problems_status(const struct problems *p)
{
    if (p->n == 0)
        return OK;
    if (p->n <= PROBLEMS_SHOWN)
        return FAIL(p->first, "%s", str_text(&p->text));
    return FAIL(p->first, "%s\nand %zu more", str_text(&p->text), p->n - PROBLEMS_SHOWN);
}

void problems_release(struct problems *p)
{
    str_release(&p->text);
    *p = (struct problems){0};
}
