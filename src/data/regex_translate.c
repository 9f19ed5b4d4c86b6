/* regex_translate.c: groups, quantifiers, anchors. See regex.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "data/regex.h"

/* What a quantifier may follow. */
enum atom { ATOM_NONE, ATOM_ANCHOR, ATOM_UNIT };

static enum status read_alternatives(struct regex_reader *r, struct str *out);

enum status regex_failed(const struct regex_reader *r, enum status status)
{
    return status_prefix(status, "split pattern '%.200s': character %zu", r->pattern,
                         (size_t)(r->at - r->pattern));
}

/* ---- escapes ---- */

/* A boundary lies between a character of a word and none; `negated`: everywhere else. */
static enum status write_word_boundary(const struct regex_reader *r, int negated, struct str *out)
{
    struct regex_set set = {0};
    struct str word = {0};
    enum status status;
    TRY_GOTO(regex_add_property(r, "#word", 0, &set), out);
    regex_set_write(&set, &word);
    TRY_GOTO(str_status(&word), out);
    str_addf(out, negated ? "(?:(?<=%s)(?=%s)|(?<!%s)(?!%s))" : "(?:(?<=%s)(?!%s)|(?<!%s)(?=%s))",
             word.text, word.text, word.text, word.text);
out:
    regex_set_release(&set);
    str_release(&word);
    return status;
}

/* At a letter that is an anchor or a construct of its own; ATOM_NONE when it is neither. */
static enum status read_special_escape(struct regex_reader *r, struct str *out, enum atom *atom)
{
    static const char any_newline[] = "(?>\\x{D}\\x{A}|[\\x{A}-\\x{D}\\x{85}\\x{2028}\\x{2029}])";
    char letter = *r->at;
    *atom = ATOM_UNIT;
    if (letter == 'R')
        str_add(out, any_newline);
    else if (letter == 'N')
        str_add(out, "[^\\n]");
    else if (letter == 'O')
        str_add(out, "(?s:.)");
    else if (letter == 'b' || letter == 'B')
        TRY(write_word_boundary(r, letter == 'B', out));
    else if (letter && strchr("AzZGK", letter))
        str_addf(out, "\\%c", letter);
    else
        *atom = ATOM_NONE;
    if (letter && strchr("bBAzZGK", letter))
        *atom = ATOM_ANCHOR;
    r->at += *atom != ATOM_NONE;
    return OK;
}

static enum status write_literal(struct regex_reader *r, int32_t code_point, struct str *out)
{
    TRY(regex_check_case(r, code_point, code_point));
    regex_write_character(out, code_point);
    r->last_literal = code_point;
    return OK;
}

/* At the backslash. */
static enum status read_escape(struct regex_reader *r, struct str *out, enum atom *atom)
{
    struct regex_set set = {0};
    int is_set = 0;
    int32_t code_point = 0;
    int32_t before = r->last_literal;
    char letter = *++r->at;
    r->last_literal = -1;
    TRY(read_special_escape(r, out, atom));
    if (*atom != ATOM_NONE)
        return OK;
    if (letter >= '1' && letter <= '9' && strspn(r->at, "01234567") < 3)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "a back reference (\\%c) is not supported", letter);
    if (letter && strchr("kgXyY", letter))
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "\\%c is not supported", letter);
    *atom = ATOM_UNIT;
    enum status status = regex_read_set_escape(r, 0, &set, &is_set);
    if (status == OK && is_set)
        regex_set_write(&set, out);
    regex_set_release(&set);
    if (status != OK || is_set)
        return status;
    TRY(regex_read_character_escape(r, &code_point));
    r->last_literal = before;
    return write_literal(r, code_point, out);
}

/* ---- groups ---- */

/* Reads up to the ')' of a group whose beginning is written. */
static enum status read_group_rest(struct regex_reader *r, struct str *out)
{
    TRY(read_alternatives(r, out));
    if (*r->at != ')')
        return REGEX_FAIL(r, ERR_DATA, "a group that is not closed");
    r->at++;
    str_add(out, ")");
    return OK;
}

/* At the letters of (?imx-imx) or (?imx-imx:...). Without the colon they hold up to the end of the
 * group around them, and alternatives from there on belong to them. */
static enum status read_options(struct regex_reader *r, struct str *out)
{
    const struct regex_reader before = *r;
    int on = 1;
    for (; *r->at != ':' && *r->at != ')'; r->at++) {
        if (*r->at == '-')
            on = 0;
        else if (*r->at == 'i')
            r->caseless = on;
        else if (*r->at == 'm')
            r->dot_all = on;
        else if (*r->at == 'x')
            r->extended = on;
        else
            return REGEX_FAIL(r, ERR_UNSUPPORTED, "the group (?%.8s is not supported", before.at);
    }
    int to_the_end = *r->at++ == ')';
    str_add(out, r->caseless ? "(?i:" : "(?-i:");
    if (to_the_end) {
        TRY(read_alternatives(r, out));
        str_add(out, ")");
    } else {
        TRY(read_group_rest(r, out));
    }
    r->caseless = before.caseless;
    r->dot_all = before.dot_all;
    r->extended = before.extended;
    return OK;
}

/* The name of (?<name>...) and (?'name'...) does not matter. */
static enum status skip_name(struct regex_reader *r, char close)
{
    const char *end = strchr(r->at, close);
    if (!end)
        return REGEX_FAIL(r, ERR_DATA, "the name of a group is not closed");
    r->at = end + 1;
    return OK;
}

/* At '('. */
static enum status read_group(struct regex_reader *r, struct str *out, enum atom *atom)
{
    static const char *const kinds[] = {"?:", "?>", "?=", "?!", "?<=", "?<!"};
    enum { FIRST_LOOK = 2 };
    const char *start = ++r->at;
    *atom = ATOM_UNIT;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!str_starts_with(r->at, kinds[i]))
            continue;
        r->at += strlen(kinds[i]);
        *atom = i < FIRST_LOOK ? ATOM_UNIT : ATOM_ANCHOR;
        str_addf(out, "(%s", kinds[i]);
        return read_group_rest(r, out);
    }
    if (str_starts_with(r->at, "?#")) {
        *atom = ATOM_NONE;
        return skip_name(r, ')');
    }
    if (r->at[0] == '*')
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "a callout (* is not supported");
    if (r->at[0] == '?' && r->at[1] && strchr("imx-", r->at[1])) {
        r->at++;
        return read_options(r, out);
    }
    if (r->at[0] == '?' && (r->at[1] == '<' || r->at[1] == '\'')) {
        r->at += 2;
        TRY(skip_name(r, start[1] == '<' ? '>' : '\''));
    } else if (r->at[0] == '?') {
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "the group (%.3s is not supported", start);
    }
    str_add(out, "(?:");
    return read_group_rest(r, out);
}

/* ---- quantifiers ---- */

struct interval {
    long low, high; /* high -1: no limit */
    size_t n_chars; /* 0: this brace is a character */
};

/* {n}, {n,}, {n,m} or {,m}, when there is one. */
static struct interval look_at_interval(const char *at)
{
    struct interval found = {.low = 0, .high = -1};
    if (*at != '{')
        return found;
    const char *p = at + 1;
    char *end;
    int has_low = isdigit((unsigned char)*p) != 0;
    if (has_low) {
        found.low = strtol(p, &end, 10);
        p = end;
    }
    if (*p == ',' && isdigit((unsigned char)p[1])) {
        found.high = strtol(p + 1, &end, 10);
        p = end;
    } else if (*p == ',' && has_low) {
        p++;
    } else if (has_low) {
        found.high = found.low;
    }
    if (*p == '}' && p > at + 1)
        found.n_chars = (size_t)(p + 1 - at);
    return found;
}

/* Puts what was written since `mark` into a group. */
static void group_since(struct str *out, size_t mark)
{
    static const char open[] = "(?:";
    const size_t n_open = sizeof(open) - 1, n = out->n - mark;
    str_add(out, "(?:)");
    if (out->failed)
        return;
    memmove(out->text + mark + n_open, out->text + mark, n);
    memcpy(out->text + mark, open, n_open);
}

/* At '{'. An interval is never possessive, and {n}? is an optional {n}. */
static enum status read_interval(struct regex_reader *r, struct interval i, struct str *out)
{
    if (i.high >= 0 && i.high < i.low)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "an interval that ends before it begins");
    r->at += i.n_chars;
    if (i.high < 0)
        str_addf(out, "{%ld,}", i.low);
    else
        str_addf(out, "{%ld,%ld}", i.low, i.high);
    if (*r->at == '?' && i.high != i.low) {
        r->at++;
        str_add(out, "?");
    }
    return OK;
}

static void read_repeat(struct regex_reader *r, struct str *out)
{
    str_add_n(out, r->at++, 1);
    if (*r->at == '?' || *r->at == '+')
        str_add_n(out, r->at++, 1);
}

/* All quantifiers behind the atom that was written since `mark`: each holds for all before it. */
static enum status read_quantifiers(struct regex_reader *r, enum atom atom, size_t mark,
                                    struct str *out)
{
    for (int n = 0;; n++) {
        struct interval i = look_at_interval(r->at);
        if (i.n_chars == 0 && (!*r->at || !strchr("*+?", *r->at)))
            return OK;
        if (atom != ATOM_UNIT)
            return REGEX_FAIL(r, ERR_DATA, "nothing here can be repeated");
        if (n > 0)
            group_since(out, mark);
        r->last_literal = -1;
        if (i.n_chars)
            TRY(read_interval(r, i, out));
        else
            read_repeat(r, out);
    }
}

/* ---- the pattern ---- */

/* Under (?x): white space and comments. */
static void skip_layout(struct regex_reader *r)
{
    while (r->extended && *r->at && strchr(" \t\r\n\f\v#", *r->at)) {
        if (*r->at == '#')
            while (r->at[1] && *r->at != '\n')
                r->at++;
        r->at++;
    }
}

static enum status read_atom(struct regex_reader *r, struct str *out, enum atom *atom)
{
    char c = *r->at;
    *atom = ATOM_UNIT;
    if (c != '\\' && c != '(' && c != '[' && c != '.' && c != '^' && c != '$')
        return write_literal(r, regex_next_character(r), out);
    if (c == '\\')
        return read_escape(r, out, atom);
    r->last_literal = -1;
    if (c == '[')
        return regex_class(r, out);
    if (c == '(')
        return read_group(r, out, atom);
    r->at++;
    *atom = c == '.' ? ATOM_UNIT : ATOM_ANCHOR;
    if (c == '.')
        str_add(out, r->dot_all ? "(?s:.)" : "[^\\n]");
    else
        str_addf(out, "(?m:%c)", c);
    return OK;
}

/* Up to the end of the pattern or a ')' that is not of a group within. */
static enum status read_alternatives(struct regex_reader *r, struct str *out)
{
    if (r->depth == REGEX_MAX_DEPTH)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "more than %d levels", (int)REGEX_MAX_DEPTH);
    r->depth++;
    enum atom atom = ATOM_NONE;
    r->last_literal = -1;
    for (skip_layout(r); *r->at && *r->at != ')'; skip_layout(r)) {
        size_t mark = out->n;
        if (*r->at == '|') {
            str_add(out, "|");
            r->at++;
            r->last_literal = -1;
            atom = ATOM_NONE;
        } else if (strchr("*+?", *r->at) || look_at_interval(r->at).n_chars) {
            return REGEX_FAIL(r, ERR_DATA, "nothing here can be repeated");
        } else {
            TRY(read_atom(r, out, &atom));
            skip_layout(r);
            TRY(read_quantifiers(r, atom, mark, out));
        }
    }
    r->last_literal = -1;
    r->depth--;
    return OK;
}

enum status regex_numeric(struct str *out)
{
    const struct regex_reader r = {.pattern = "", .at = ""};
    struct regex_set set = {0};
    enum status status = regex_add_property(&r, "#numeric", 0, &set);
    if (status == OK)
        regex_set_write(&set, out);
    regex_set_release(&set);
    return status;
}

enum status regex_translate(const char *pattern, struct str *out)
{
    struct regex_reader r = {.pattern = pattern, .at = pattern, .last_literal = -1};
    TRY(read_alternatives(&r, out));
    if (*r.at)
        return REGEX_FAIL(&r, ERR_DATA, "a ')' without its '('");
    return str_status(out);
}
