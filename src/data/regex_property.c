/* regex_property.c: named sets of characters, and characters by their codes. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/compiler.h"
#include "data/regex.h"

enum { NO, YES };

static const struct property {
    const char *name;
    const char *body;    /* in PCRE2 */
    const char *added;   /* characters that only Oniguruma takes for such, */
    const char *removed; /* and that only PCRE2 does */
    int caseless;        /* (?i) does not change it, in either */
} properties[] = {
#define PROPERTY(name, body, added, removed, caseless) {name, body, added, removed, caseless},
#include "data/regex_properties.def"
#undef PROPERTY
};

void regex_set_release(struct regex_set *set)
{
    str_release(&set->body);
    str_release(&set->others);
}

void regex_set_write(const struct regex_set *set, struct str *out)
{
    out->failed |= set->body.failed | set->others.failed;
    if (set->others.n == 0) {
        str_addf(out, "[%s]", str_text(&set->body));
        return;
    }
    str_add(out, "(?:");
    if (set->body.n > 0)
        str_addf(out, "[%s]%s)", str_text(&set->body), str_text(&set->others));
    else
        str_addf(out, "%s)", str_text(&set->others) + 1);
}

static const struct property *find_property(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(properties); i++)
        if (strcmp(properties[i].name, name) == 0)
            return &properties[i];
    return NULL;
}

enum status regex_add_property(const struct regex_reader *r, const char *name, int negated,
                               struct regex_set *set)
{
    const struct property *p = find_property(name);
    if (!p)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "the property \"%s\" is not known", name);
    if (r->caseless && !p->caseless)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "the property \"%s\" under (?i) is not supported",
                          name);
    if (p->removed[0] && negated)
        str_addf(&set->others, "|[%s]|[^%s%s]", p->removed, p->body, p->added);
    else if (p->removed[0])
        str_addf(&set->others, "|(?![%s])[%s%s]", p->removed, p->body, p->added);
    else if (negated)
        str_addf(&set->others, "|[^%s%s]", p->body, p->added);
    else
        str_addf(&set->body, "%s%s", p->body, p->added);
    TRY(str_status(&set->body));
    return str_status(&set->others);
}

/* At the brace of \p{...}: its name without what does not count, and whether it has a "^". */
static enum status read_property_name(struct regex_reader *r, char *name, size_t capacity,
                                      int *negated)
{
    size_t n = 0;
    const char *end = *r->at == '{' ? strchr(r->at, '}') : NULL;
    if (!end)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "\\p without a name in braces is not supported");
    const char *p = r->at + 1;
    *negated = *p == '^';
    for (p += *negated; p < end; p++) {
        if (*p == ' ' || *p == '_' || *p == '-')
            continue;
        if (n + 1 == capacity || !isalnum((unsigned char)*p))
            return REGEX_FAIL(r, ERR_UNSUPPORTED, "the property \\p%.*s is not known",
                              (int)(end + 1 - r->at), r->at);
        name[n++] = (char)tolower((unsigned char)*p);
    }
    name[n] = '\0';
    r->at = end + 1;
    return OK;
}

enum status regex_read_set_escape(struct regex_reader *r, int in_class, struct regex_set *set,
                                  int *is_set)
{
    static const char letters[] = "wsdh";
    const char *const names[] = {in_class ? "word" : "#word", "space", "digit", "xdigit"};
    char letter = *r->at, name[64];
    int negated = isupper((unsigned char)letter) != 0, inside = 0;
    const char *found = letter ? strchr(letters, tolower((unsigned char)letter)) : NULL;
    *is_set = found || letter == 'p' || letter == 'P';
    if (!*is_set)
        return OK;
    r->at++;
    if (found)
        return regex_add_property(r, names[found - letters], negated, set);
    TRY(read_property_name(r, name, sizeof(name), &inside));
    int is_word = strcmp(name, names[0] + !in_class) == 0; /* this too differs outside */
    return regex_add_property(r, is_word ? names[0] : name, negated != inside, set);
}

/* ---- characters ---- */

int32_t regex_next_character(struct regex_reader *r)
{
    utf8proc_int32_t code_point;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)r->at, -1, &code_point);
    BUG_ON(n <= 0); /* JSON strings are UTF-8 */
    r->at += n;
    return code_point;
}

void regex_write_character(struct str *out, int32_t code_point)
{
    if (code_point < 0x80 && isalnum(code_point))
        str_addf(out, "%c", (char)code_point);
    else
        str_addf(out, "\\x{%X}", (unsigned)code_point);
}

/* Digits of a code, at most `n_max`, that end at `close` unless it is 0. */
static enum status read_code(struct regex_reader *r, int base, int n_max, char close,
                             int32_t *code_point)
{
    char digits[12] = {0}, *end;
    int n = 0;
    while (n < n_max && isxdigit((unsigned char)r->at[n]) && (base == 16 || r->at[n] < '8'))
        n++;
    memcpy(digits, r->at, (size_t)n);
    long value = strtol(digits, &end, base);
    if (n == 0 || *end || (close && r->at[n] != close) || value > 0x10FFFF ||
        (value >= 0xD800 && value < 0xE000))
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "this code of a character is not supported");
    r->at += n + (close != 0);
    *code_point = (int32_t)value;
    return OK;
}

/* \x41 and \101 are bytes: what is above ASCII would be part of a character. */
static enum status read_byte(struct regex_reader *r, int base, int n_max, int32_t *code_point)
{
    TRY(read_code(r, base, n_max, 0, code_point));
    if (*code_point > 0x7F)
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "a single byte above 7F is not supported");
    return OK;
}

enum status regex_read_character_escape(struct regex_reader *r, int32_t *code_point)
{
    static const char letters[] = "tnrfaev", values[] = "\t\n\r\f\a\x1B\v";
    const char *found = *r->at ? strchr(letters, *r->at) : NULL;
    if (!*r->at)
        return REGEX_FAIL(r, ERR_DATA, "a backslash at the end");
    if (found) {
        *code_point = values[found - letters];
        r->at++;
        return OK;
    }
    char letter = *r->at;
    if (letter >= '0' && letter <= '7')
        return read_byte(r, 8, 3, code_point);
    if (strchr("cCM", letter))
        return REGEX_FAIL(r, ERR_UNSUPPORTED, "\\%c is not supported", letter);
    *code_point = regex_next_character(r);
    if (letter == 'u')
        return read_code(r, 16, 4, 0, code_point);
    if (letter != 'x' && letter != 'o')
        return OK;
    if (*r->at == '{') {
        r->at++;
        return read_code(r, letter == 'x' ? 16 : 8, 8, '}', code_point);
    }
    return letter == 'x' ? read_byte(r, 16, 2, code_point) : OK;
}

/* ---- letter case ---- */

static int folds_to_several(int32_t code_point, int32_t folded[4])
{
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(code_point, folded, 4, UTF8PROC_CASEFOLD, &boundary);
    return n > 1;
}

enum status regex_check_case(const struct regex_reader *r, int32_t first, int32_t last)
{
    /* where Unicode has them all */
    static const int32_t blocks[][2] = {{0xDF, 0x587}, {0x1E96, 0x1FFC}, {0xFB00, 0xFB17}};
    if (!r->caseless)
        return OK;
    int32_t before = r->last_literal, folded[4];
    for (size_t b = 0; b < ARRAY_LEN(blocks); b++) {
        for (int32_t c = blocks[b][0]; c <= blocks[b][1]; c++) {
            if (!folds_to_several(c, folded))
                continue;
            int is_pair = first == last && before >= 0 && folded[0] == utf8proc_tolower(before) &&
                          folded[1] == utf8proc_tolower(first);
            if (is_pair || (c >= first && c <= last))
                return REGEX_FAIL(r, ERR_UNSUPPORTED,
                                  "U+%04X, which under (?i) is several characters, is not "
                                  "supported",
                                  (unsigned)c);
        }
    }
    return OK;
}
