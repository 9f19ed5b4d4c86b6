/* json_parse.c: JSON text into Jansson's values.
 *
 * Jansson's own parser does not check all of its allocations (a token whose buffer could not grow
 * loses bytes, or its end), refuses integers beyond 64 bits and takes no byte order mark. This one
 * reads what RFC 8259 allows, with three limits that are errors and say so: a number beyond the
 * range of a double, U+0000 in a key, and nesting deeper than MAX_DEPTH.
 */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/compiler.h"
#include "base/json.h"
#include "base/str.h"

enum { MAX_DEPTH = 2048 };

struct parser {
    const char *start, *at, *end;
    const char *what;
    enum status code;
    int depth;
    struct str token; /* the string or number at hand, where the text itself does not do */
};

/* Line and column (in characters) of where the parser stands, and the reason. */
#define PARSE_FAIL(p, ...) parse_failed((p), FAIL((p)->code, __VA_ARGS__))

static enum status parse_failed(const struct parser *p, enum status status)
{
    long line = 1, column = 1;
    for (const char *c = p->start; c < p->at; c++) {
        column += ((uint8_t)*c & 0xC0) != 0x80;
        if (*c == '\n') {
            line++;
            column = 1;
        }
    }
    return status_prefix(status, "%s:%ld:%ld: not valid JSON", p->what, line, column);
}

static enum status out_of_memory(const struct parser *p)
{
    return FAIL(ERR_MEMORY, "%s: out of memory while reading JSON", p->what);
}

/* The next character that is not white space, or -1 at the end. */
static int next_character(struct parser *p)
{
    while (p->at < p->end && *p->at && strchr(" \t\r\n", *p->at))
        p->at++;
    return p->at < p->end ? (uint8_t)*p->at : -1;
}

/* ---- strings ---- */

static int four_hex_digits(const struct parser *p, uint32_t *unit)
{
    *unit = 0;
    if (p->end - p->at < 4)
        return 0;
    for (int i = 0; i < 4; i++) {
        int c = tolower((uint8_t)p->at[i]);
        if (!isxdigit(c))
            return 0;
        *unit = *unit * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return 1;
}

/* Behind "\u": a code unit, or the two of a character beyond U+FFFF. */
static enum status parse_code_point(struct parser *p)
{
    uint32_t high, low;
    utf8proc_uint8_t bytes[4];
    if (!four_hex_digits(p, &high))
        return PARSE_FAIL(p, "\\u needs four hexadecimal digits");
    p->at += 4;
    if (high >= 0xD800 && high <= 0xDFFF) {
        int is_pair = high < 0xDC00 && p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u';
        p->at += is_pair ? 2 : 0;
        if (!is_pair || !four_hex_digits(p, &low) || low < 0xDC00 || low > 0xDFFF)
            return PARSE_FAIL(p, "\\u%04X is half of a character; its other half is missing", high);
        p->at += 4;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)high, bytes);
    str_add_n(&p->token, (const char *)bytes, (size_t)n);
    return OK;
}

static enum status parse_escape(struct parser *p)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = p->at < p->end && *p->at ? strchr(names, *p->at) : NULL;
    if (p->at < p->end && *p->at == 'u') {
        p->at++;
        return parse_code_point(p);
    }
    if (!name)
        return PARSE_FAIL(p, "a backslash that is followed by none of \"\\/bfnrtu");
    str_add_n(&p->token, values + (name - names), 1);
    p->at++;
    return OK;
}

/* Passes over characters that stand for themselves. */
static enum status skip_plain(struct parser *p)
{
    while (p->at < p->end && *p->at != '"' && *p->at != '\\') {
        uint8_t byte = (uint8_t)*p->at;
        utf8proc_int32_t code_point;
        utf8proc_ssize_t n = 1;
        if (byte < 0x20)
            return PARSE_FAIL(p, "control character 0x%02X in a string; write it as \\u%04X", byte,
                              byte);
        if (byte >= 0x80)
            n = utf8proc_iterate((const utf8proc_uint8_t *)p->at, p->end - p->at, &code_point);
        if (n <= 0)
            return PARSE_FAIL(p, "byte 0x%02X in a string is not UTF-8", byte);
        p->at += n;
    }
    return OK;
}

/* At a '"'. The text is borrowed: from the input, or from p->token where there were escapes. */
static enum status parse_string(struct parser *p, const char **text, size_t *n_bytes)
{
    const char *start = ++p->at;
    TRY(skip_plain(p));
    *text = start;
    *n_bytes = (size_t)(p->at - start);
    if (p->at < p->end && *p->at == '\\') {
        str_clear(&p->token);
        str_add_n(&p->token, start, *n_bytes);
        while (p->at < p->end && *p->at == '\\') {
            p->at++;
            TRY(parse_escape(p));
            start = p->at;
            TRY(skip_plain(p));
            str_add_n(&p->token, start, (size_t)(p->at - start));
        }
        TRY(str_status(&p->token));
        *text = str_text(&p->token);
        *n_bytes = p->token.n;
    }
    if (p->at == p->end)
        return PARSE_FAIL(p, "a string is not closed");
    p->at++;
    return OK;
}

/* ---- numbers ---- */

static size_t skip_digits(struct parser *p)
{
    const char *start = p->at;
    while (p->at < p->end && isdigit((uint8_t)*p->at))
        p->at++;
    return (size_t)(p->at - start);
}

/* Passes over a number; whether it has neither a fraction nor an exponent. */
static enum status skip_number(struct parser *p, int *is_integer)
{
    *is_integer = 1;
    p->at += *p->at == '-';
    const char *digits = p->at;
    size_t n_digits = skip_digits(p);
    if (n_digits == 0)
        return PARSE_FAIL(p, "a minus sign without digits");
    if (n_digits > 1 && *digits == '0')
        return PARSE_FAIL(p, "a number that begins with 0");
    if (p->at < p->end && *p->at == '.') {
        *is_integer = 0;
        p->at++;
        if (skip_digits(p) == 0)
            return PARSE_FAIL(p, "a decimal point without digits behind it");
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        *is_integer = 0;
        p->at++;
        p->at += p->at < p->end && (*p->at == '+' || *p->at == '-');
        if (skip_digits(p) == 0)
            return PARSE_FAIL(p, "an exponent without digits");
    }
    return OK;
}

/* False when the digits do not fit 64 bits. */
static int to_integer(const char *text, size_t n, json_int_t *value)
{
    int is_negative = text[0] == '-';
    *value = 0;
    for (size_t i = (size_t)is_negative; i < n; i++) {
        json_int_t digit = text[i] - '0';
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, is_negative ? -digit : digit, value))
            return 0;
    }
    return 1;
}

/* strtod wants an end, and the decimal point of the locale that the process has set. */
static enum status to_real(struct parser *p, const char *text, size_t n, double *value)
{
    str_clear(&p->token);
    str_add_n(&p->token, text, n);
    TRY(str_status(&p->token));
    char *point = strchr(p->token.text, '.');
    if (point)
        *point = localeconv()->decimal_point[0];
    *value = strtod(p->token.text, NULL);
    if (isinf(*value))
        return PARSE_FAIL(p, "a number beyond the range of a double");
    return OK;
}

static enum status parse_number(struct parser *p, json_t **out)
{
    const char *start = p->at;
    int is_integer;
    json_int_t integer;
    double real;
    TRY(skip_number(p, &is_integer));
    size_t n = (size_t)(p->at - start);
    if (is_integer && to_integer(start, n, &integer)) {
        *out = json_integer(integer);
    } else {
        TRY(to_real(p, start, n, &real));
        *out = json_real(real);
    }
    return *out ? OK : out_of_memory(p);
}

/* ---- values ---- */

static enum status parse_value(struct parser *p, json_t **out);

static enum status parse_word(struct parser *p, json_t **out)
{
    static const char *const words[] = {"true", "false", "null"};
    json_t *const values[] = {json_true(), json_false(), json_null()};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(p->end - p->at) >= n && memcmp(p->at, words[i], n) == 0) {
            p->at += n;
            *out = values[i];
            return OK;
        }
    }
    return PARSE_FAIL(p, "expected a value");
}

/* Behind an element: 1 when another follows, 0 behind the last. */
static enum status parse_separator(struct parser *p, int close, int *more)
{
    int c = next_character(p);
    if (c != ',' && c != close)
        return PARSE_FAIL(p, "expected ',' or '%c'", close);
    p->at++;
    *more = c == ',';
    return OK;
}

static enum status fill_array(struct parser *p, json_t *array)
{
    int more = next_character(p) != ']';
    p->at += !more;
    while (more) {
        json_t *value;
        TRY(parse_value(p, &value));
        if (json_array_append_new(array, value) != 0)
            return out_of_memory(p);
        TRY(parse_separator(p, ']', &more));
    }
    return OK;
}

/* `key` is copied by Jansson only with its value, so it is kept here until that is read. */
static enum status parse_key(struct parser *p, const json_t *object, struct str *key)
{
    const char *text;
    size_t n_bytes;
    if (next_character(p) != '"')
        return PARSE_FAIL(p, "expected a key in quotes");
    TRY(parse_string(p, &text, &n_bytes));
    if (memchr(text, '\0', n_bytes))
        return PARSE_FAIL(p, "U+0000 in a key");
    str_clear(key);
    str_add_n(key, text, n_bytes);
    TRY(str_status(key));
    if (json_object_get(object, str_text(key)))
        return PARSE_FAIL(p, "duplicate key \"%.100s\"", str_text(key));
    if (next_character(p) != ':')
        return PARSE_FAIL(p, "expected ':'");
    p->at++;
    return OK;
}

static enum status fill_object(struct parser *p, json_t *object)
{
    enum status status = OK;
    struct str key = {0};
    int more = next_character(p) != '}';
    p->at += !more;
    while (more) {
        json_t *value;
        TRY_GOTO(parse_key(p, object, &key), out);
        TRY_GOTO(parse_value(p, &value), out);
        if (json_object_set_new_nocheck(object, str_text(&key), value) != 0) {
            status = out_of_memory(p);
            goto out;
        }
        TRY_GOTO(parse_separator(p, '}', &more), out);
    }
out:
    str_release(&key);
    return status;
}

static enum status parse_container(struct parser *p, json_t **out)
{
    int is_object = *p->at == '{';
    if (p->depth == MAX_DEPTH)
        return PARSE_FAIL(p, "more than %d levels", (int)MAX_DEPTH);
    json_t *container = is_object ? json_object() : json_array();
    if (!container)
        return out_of_memory(p);
    p->at++;
    p->depth++;
    enum status status = is_object ? fill_object(p, container) : fill_array(p, container);
    p->depth--;
    if (status == OK)
        *out = container;
    else
        json_decref(container);
    return status;
}

static enum status parse_value(struct parser *p, json_t **out)
{
    int c = next_character(p);
    const char *text;
    size_t n_bytes;
    *out = NULL;
    if (c == '{' || c == '[')
        return parse_container(p, out);
    if (c == '-' || isdigit(c))
        return parse_number(p, out);
    if (c != '"')
        return parse_word(p, out);
    TRY(parse_string(p, &text, &n_bytes));
    *out = json_stringn_nocheck(text, n_bytes);
    return *out ? OK : out_of_memory(p);
}

static enum status parse_document(struct parser *p, json_t **out)
{
    int c = next_character(p);
    if (c != '{' && c != '[')
        return PARSE_FAIL(p, "expected '{' or '['");
    TRY(parse_container(p, out));
    if (next_character(p) < 0)
        return OK;
    json_decref(*out);
    *out = NULL;
    return PARSE_FAIL(p, "more text behind the end");
}

enum status json_read_text(json_t **out, const char *text, size_t n_bytes, const char *what,
                           enum status code)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    struct parser p = {
        .start = text, .at = text, .end = text + n_bytes, .what = what, .code = code};
    if (n_bytes >= 3 && memcmp(text, byte_order_mark, 3) == 0)
        p.start = p.at = text + 3;
    *out = NULL;
    enum status status = parse_document(&p, out);
    str_release(&p.token);
    return status;
}
