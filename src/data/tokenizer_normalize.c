/* tokenizer_normalize.c: Unicode normal forms, through utf8proc; and spaces, where the normalizer
 * has a say in them.
 *
 * ASCII is its own normal form under all four, and is most of most texts: it is not copied.
 */
#include <string.h>
#include <utf8proc.h>

#include "base/vec.h"
#include "data/tokenizer_internal.h"

static int is_ascii(const char *text, size_t n_bytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n_bytes; i++)
        any |= (uint8_t)text[i];
    return any < 0x80;
}

static enum status normal_form(struct encoder *e, const char *text, size_t n_bytes,
                               const char **out, size_t *n_out)
{
    *out = text;
    *n_out = n_bytes;
    utf8proc_option_t options = (utf8proc_option_t)e->t->normalizer;
    if (options == 0 || is_ascii(text, n_bytes))
        return OK;

    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t n_points =
        utf8proc_decompose(bytes, (utf8proc_ssize_t)n_bytes, NULL, 0, options);
    if (n_points < 0)
        return FAIL(ERR_DATA, "%s: cannot normalise the text: %s", e->t->what,
                    utf8proc_errmsg(n_points));
    e->codepoints.n = 0;
    TRY(vec_reserve(&e->codepoints, (size_t)n_points + 1)); /* utf8proc adds a NUL */
    n_points = utf8proc_decompose(bytes, (utf8proc_ssize_t)n_bytes, e->codepoints.items, n_points,
                                  options);
    if (n_points >= 0)
        n_points = utf8proc_reencode(e->codepoints.items, n_points, options);
    if (n_points < 0)
        return FAIL(ERR_DATA, "%s: cannot normalise the text: %s", e->t->what,
                    utf8proc_errmsg(n_points));
    *out = (const char *)e->codepoints.items;
    *n_out = (size_t)n_points;
    return OK;
}

/* A mark in the text is the space that it would be taken for; one space goes in front. */
static enum status place_spaces(struct encoder *e, int prepend, const char **text, size_t *n_bytes)
{
    if (*n_bytes == 0 || (!prepend && !memmem(*text, *n_bytes, SPACE_MARK, sizeof(SPACE_MARK) - 1)))
        return OK;
    struct str *s = &e->spaced;
    str_clear(s);
    if (prepend)
        str_add_n(s, " ", 1);
    size_t first = s->n;
    str_add_n(s, *text, *n_bytes);
    TRY(str_status(s));
    *n_bytes = first + unmark_spaces(s->text + first, *n_bytes, s->text + first);
    *text = s->text;
    return OK;
}

enum status normalize(struct encoder *e, const char *text, size_t n_bytes, int begins,
                      const char **out, size_t *n_out)
{
    TRY(normal_form(e, text, n_bytes, out, n_out));
    return e->t->marks_early ? place_spaces(e, begins && e->t->prepend, out, n_out) : OK;
}

/* ASCII never joins what stands before it, in any of the forms. In the canonical ones nothing does
 * that begins a new grapheme; the others take characters apart into such as may join (Hangul). */
static int begins_anew(int options, int32_t before, int32_t c)
{
    if (options == 0 || c < 0x80)
        return 1;
    return !(options & UTF8PROC_COMPAT) && utf8proc_grapheme_break(before, c);
}

static int32_t character_at(const char *text, size_t n_bytes)
{
    int32_t c = -1;
    (void)utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n_bytes, &c);
    return c;
}

static size_t character_before(const char *text, size_t end)
{
    size_t start = end - 1;
    while (start > 0 && ((uint8_t)text[start] & 0xC0) == 0x80)
        start--;
    return start;
}

size_t normal_boundary(const struct tokenizer *t, const char *text, size_t n_bytes)
{
    size_t before, at = n_bytes > 0 ? character_before(text, n_bytes) : 0;
    for (; at > 0; at = before) {
        before = character_before(text, at);
        if (begins_anew(t->normalizer, character_at(text + before, at - before),
                        character_at(text + at, n_bytes - at)))
            return at;
    }
    return 0;
}
