/* regex_class.c: classes of characters, "[a-z[:digit:]\p{L}[^x]&&[^aeiou]]".
 *
 * PCRE2 has neither nested classes nor intersections. What is a plain union stays one class; the
 * rest is made of alternatives and looks ahead that all match one character:
 *
 *     [ab[^c]]      (?:[ab]|[^c])
 *     [ab&&[^c]]    (?:(?=[ab])[^c])
 *     [^a[^b]]      (?:(?!(?:[a]|[^b]))(?s:.))
 */
#include <string.h>

#include "data/regex.h"

static enum status read_class(struct regex_reader *r, struct regex_set *parent);

/* At "[:": [:alpha:] or [:^alpha:]. *is_posix = 0 when this is a nested class that begins so. */
static enum status read_posix(struct regex_reader *r, struct regex_set *set, int *is_posix)
{
    const char *name = r->at + 2, *end = strstr(name, ":]");
    int negated = *name == '^';
    name += negated;
    char found[16];
    size_t n = end && end > name ? (size_t)(end - name) : 0;
    *is_posix = n > 0 && n + 1 < sizeof(found) && strspn(name, "abcdefghijklmnopqrstuvwxyz") == n;
    if (!*is_posix)
        return OK;
    found[0] = ':';
    memcpy(found + 1, name, n);
    found[n + 1] = '\0';
    TRY(regex_add_property(r, found, negated, set));
    r->at = end + 2;
    return OK;
}

/* A character, by itself or by its code. In a class \b is a backspace. */
static enum status read_one(struct regex_reader *r, int32_t *code_point)
{
    if (*r->at != '\\') {
        *code_point = regex_next_character(r);
        return OK;
    }
    r->at++;
    if (*r->at == 'b') {
        r->at++;
        *code_point = '\b';
        return OK;
    }
    if (*r->at && strchr("RXNOKkgyYAzZGB89", *r->at))
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "\\%c in a class is not supported", *r->at);
    return regex_read_character_escape(r, code_point);
}

static enum status read_range(struct regex_reader *r, struct regex_set *set)
{
    int32_t first = 0, last;
    TRY(read_one(r, &first));
    last = first;
    int is_range = r->at[0] == '-' && r->at[1] && r->at[1] != ']' && r->at[1] != '[' &&
                   strncmp(r->at + 1, "&&", 2) != 0;
    if (is_range) {
        r->at++;
        if (r->at[0] == '\\' && r->at[1] && strchr("wWsSdDhHpP", r->at[1]))
            return REGEX_FAIL(r, ERR_DATA, "a range that ends with a set");
        TRY(read_one(r, &last));
    }
    if (last < first)
        return REGEX_FAIL(r, ERR_DATA, "a range that ends before it begins");
    TRY(regex_check_case(r, first, last));
    regex_write_character(&set->body, first);
    if (is_range) {
        str_add(&set->body, "-");
        regex_write_character(&set->body, last);
    }
    return OK;
}

static enum status read_item(struct regex_reader *r, struct regex_set *set)
{
    int is_known = 0;
    if (r->at[0] == '[' && r->at[1] == ':')
        TRY(read_posix(r, set, &is_known));
    if (is_known)
        return OK;
    if (r->at[0] == '[')
        return read_class(r, set);
    if (r->at[0] == '\\') {
        r->at++;
        TRY(regex_read_set_escape(r, 1, set, &is_known));
        if (is_known)
            return OK;
        r->at--;
    }
    return read_range(r, set);
}

/* One side of an intersection, up to "&&" or "]". */
static enum status read_side(struct regex_reader *r, struct regex_set *set)
{
    while (*r->at && *r->at != ']' && strncmp(r->at, "&&", 2) != 0)
        TRY(read_item(r, set));
    TRY(str_status(&set->body));
    TRY(str_status(&set->others));
    if (!*r->at)
        return REGEX_FAIL(r, ERR_DATA, "a class that is not closed");
    if (set->body.n == 0 && set->others.n == 0)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "an empty class is not supported");
    return OK;
}

/* Behind "[" or "[^" up to "]". `sides` is "(?=...)" of each side but the last, which is `set`. */
static enum status read_sides(struct regex_reader *r, struct regex_set *set, struct str *sides)
{
    if (*r->at == ']') { /* stands for itself in this place */
        str_add(&set->body, "\\]");
        r->at++;
    }
    TRY(read_side(r, set));
    while (*r->at == '&') {
        str_add(sides, "(?=");
        regex_set_write(set, sides);
        str_add(sides, ")");
        str_clear(&set->body);
        str_clear(&set->others);
        r->at += 2;
        TRY(read_side(r, set));
    }
    r->at++;
    return OK;
}

/* Adds a class that was read to the one around it. */
static void add_class(struct regex_set *parent, const struct regex_set *set,
                      const struct str *sides, int negated)
{
    if (sides->n == 0 && set->others.n == 0) {
        if (negated)
            str_addf(&parent->others, "|[^%s]", str_text(&set->body));
        else
            str_add(&parent->body, str_text(&set->body));
        return;
    }
    str_addf(&parent->others, negated ? "|(?!%s" : "|(?:%s", str_text(sides));
    regex_set_write(set, &parent->others);
    str_add(&parent->others, negated ? ")(?s:.)" : ")");
}

static enum status read_class(struct regex_reader *r, struct regex_set *parent)
{
    enum status status;
    struct regex_set set = {0};
    struct str sides = {0};
    if (r->depth == REGEX_MAX_DEPTH)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "more than %d levels", (int)REGEX_MAX_DEPTH);
    r->depth++;
    r->at++;
    int negated = *r->at == '^';
    r->at += negated;
    TRY_GOTO(read_sides(r, &set, &sides), out);
    r->depth--;
    TRY_GOTO(str_status(&sides), out);
    add_class(parent, &set, &sides, negated);
out:
    regex_set_release(&set);
    str_release(&sides);
    return status;
}

enum status regex_class(struct regex_reader *r, struct str *out)
{
    struct regex_set set = {0};
    r->last_literal = -1;
    enum status status = read_class(r, &set);
    if (status == OK)
        regex_set_write(&set, out);
    regex_set_release(&set);
    return status;
}
