/* text.c: tokens, names and shapes. Numbers are in text_number.c, attributes in text_attrs.c. */
#include "graph/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "graph/tensor.h"

void text_init(struct text *t, const char *source)
{
    *t = (struct text){.at = source, .line_start = source, .line = 1};
}

struct text_place text_here(struct text *t)
{
    for (;;) {
        if (*t->at == '#') {
            while (*t->at && *t->at != '\n')
                t->at++;
        }
        if (!isspace((unsigned char)*t->at))
            break;
        if (*t->at++ == '\n') {
            t->line++;
            t->line_start = t->at;
        }
    }
    return (struct text_place){t->line, (int)MIN(t->at - t->line_start, 1000000000) + 1};
}

bool text_at_end(struct text *t)
{
    (void)text_here(t);
    return *t->at == '\0';
}

bool text_take(struct text *t, const char *token)
{
    (void)text_here(t);
    size_t n = strlen(token);
    if (strncmp(t->at, token, n) != 0)
        return false;
    t->at += n;
    return true;
}

enum status text_need(struct text *t, const char *token)
{
    if (!text_take(t, token))
        return TEXT_FAIL(t, "expected '%s' here", token);
    return OK;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

enum status text_word(struct text *t, char out[TEXT_WORD])
{
    struct text_place place = text_here(t);
    size_t n = 0;
    while (is_word(t->at[n]))
        n++;
    if (n == 0 || isdigit((unsigned char)t->at[0]))
        return TEXT_FAIL_AT(place, "expected a name here");
    if (n >= TEXT_WORD)
        return TEXT_FAIL_AT(place, "a name of %zu letters is too long", n);
    memcpy(out, t->at, n);
    out[n] = '\0';
    t->at += n;
    return OK;
}

bool text_take_word(struct text *t, const char *word)
{
    (void)text_here(t);
    size_t n = strlen(word);
    if (strncmp(t->at, word, n) != 0 || is_word(t->at[n]))
        return false;
    t->at += n;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The character after a backslash; \xHH is any byte but zero. */
static enum status escape(struct text *t, struct text_place start, struct str *out)
{
    char c = *t->at;
    if (c == 'x') {
        int high = hex_digit(t->at[1]);
        int low = high < 0 ? -1 : hex_digit(t->at[2]);
        if (low < 0 || high + low == 0)
            return TEXT_FAIL_AT(start, "\\x needs two hexadecimal digits that are not 00");
        c = (char)(high * 16 + low);
        t->at += 2;
    } else if (c != '"' && c != '\\') {
        return TEXT_FAIL_AT(start, "only \\\", \\\\ and \\xHH can follow a backslash");
    }
    str_add_n(out, &c, 1);
    t->at++;
    return OK;
}

enum status text_quoted(struct text *t, struct str *out)
{
    struct text_place start = text_here(t); /* the newline that may follow must not be skipped */
    TRY(text_need(t, "\""));
    for (;;) {
        size_t n = strcspn(t->at, "\"\\\n");
        str_add_n(out, t->at, n);
        t->at += n;
        if (*t->at == '"') {
            t->at++;
            return str_status(out);
        }
        if (*t->at != '\\')
            return TEXT_FAIL_AT(start, "the quoted name does not end on its line");
        t->at++;
        TRY(escape(t, start, out));
    }
}

void text_add_quoted(struct str *out, const char *s)
{
    str_add(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            str_addf(out, "\\x%02x", c);
        else
            str_add_n(out, s, 1);
    }
    str_add(out, "\"");
}

enum status text_dtype(struct text *t, enum dtype *d)
{
    struct text_place place = text_here(t);
    char word[TEXT_WORD];
    TRY(text_word(t, word));
    if (!dtype_parse(word, d))
        return TEXT_FAIL_AT(place, "'%s' is not a dtype (f32, f64, bf16, f16, i32, i64, u8)", word);
    return OK;
}

enum status text_shape(struct text *t, struct shape *s)
{
    *s = (struct shape){0};
    TRY(text_need(t, "["));
    if (text_take(t, "]"))
        return OK;
    do {
        struct text_place place = text_here(t);
        int64_t dim;
        TRY(text_int(t, &dim));
        if (dim < 0)
            return TEXT_FAIL_AT(place, "a dimension cannot be negative");
        if (s->rank == MAX_RANK)
            return TEXT_FAIL_AT(place, "a shape has at most %d dimensions", MAX_RANK);
        s->dim[s->rank++] = dim;
    } while (text_take(t, ","));
    return text_need(t, "]");
}

void text_add_shape(struct str *out, const struct shape *s)
{
    str_add(out, "[");
    for (int i = 0; i < s->rank; i++)
        str_addf(out, i ? ",%lld" : "%lld", (long long)s->dim[i]);
    str_add(out, "]");
}
