/* json_line.c: RFC 8259 over a byte reader; the end of the line is the end of the text. */
#include "data/json_line.h"

#include <inttypes.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_DEPTH = 512 };

struct scan {
    struct byte_reader *r;
    int64_t line_start;
};

static enum status wrong(const struct scan *s, const char *what)
{
    if (s->r->status != OK)
        return s->r->status;
    return FAIL(ERR_DATA, "not valid JSON: column %" PRId64 ": %s",
                reader_at(s->r) - s->line_start + 1, what);
}

static int is_space(int c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int skip_space(struct byte_reader *r)
{
    while (is_space(reader_peek(r)))
        (void)reader_next(r);
    return reader_peek(r);
}

/* ---- strings ----------------------------------------------------------------------------------
 */

static int hex_value(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hexadecimal digits; -1 when they are not. */
static int32_t read_hex4(struct byte_reader *r)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(reader_peek(r));
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
        (void)reader_next(r);
    }
    return value;
}

/* What follows "\u": a code point, of two halves where it takes them; -1 when there is none. */
static int32_t read_unicode(struct byte_reader *r)
{
    int32_t high = read_hex4(r);
    if (high < 0xD800 || high > 0xDFFF)
        return high;
    if (high > 0xDBFF || reader_next(r) != '\\' || reader_next(r) != 'u')
        return -1;
    int32_t low = read_hex4(r);
    return low >= 0xDC00 && low <= 0xDFFF ? 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) : -1;
}

/* What follows a backslash, as UTF-8; 0 bytes when it is no escape. */
static size_t read_escape(struct byte_reader *r, char out[4])
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    int c = reader_next(r);
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name) {
        out[0] = bytes[name - names];
        return 1;
    }
    int32_t code_point = c == 'u' ? read_unicode(r) : -1;
    return code_point < 0 ? 0 : (size_t)utf8proc_encode_char(code_point, (utf8proc_uint8_t *)out);
}

/* One character of UTF-8 whose first byte was read; 0 bytes when it is not well-formed. */
static size_t read_character(struct byte_reader *r, int first, char out[4])
{
    int32_t code_point;
    size_t n = 1, length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    out[0] = (char)first;
    while (n < length && (reader_peek(r) & 0xC0) == 0x80 && reader_peek(r) >= 0)
        out[n++] = (char)reader_next(r);
    return utf8proc_iterate((const utf8proc_uint8_t *)out, (utf8proc_ssize_t)n, &code_point) ==
                   (utf8proc_ssize_t)n
               ? n
               : 0;
}

/* Checks a string from its quote to its end; its first bytes go into `key` when that is given. */
static enum status scan_string(struct scan *s, char key[JSON_KEY_BYTES])
{
    size_t n_key = 0;
    (void)reader_next(s->r);
    for (;;) {
        char text[4];
        int c = reader_peek(s->r);
        if (c < 0x20)
            return wrong(s, c < 0 || c == '\n' ? "the line ends inside a string"
                                               : "a control character inside a string");
        (void)reader_next(s->r);
        if (c == '"')
            break;
        size_t n = c == '\\' ? read_escape(s->r, text) : read_character(s->r, c, text);
        if (n == 0)
            return wrong(s, c == '\\' ? "not an escape sequence" : "not UTF-8");
        for (size_t i = 0; key && i < n && n_key + 1 < JSON_KEY_BYTES; i++)
            key[n_key++] = text[i];
    }
    if (key)
        key[n_key] = '\0';
    return OK;
}

void json_string_begin(struct byte_reader *r, int64_t at)
{
    reader_seek(r, at + 1);
}

size_t json_string_read(struct byte_reader *r, char *out, size_t n)
{
    size_t used = 0;
    while (used + 4 <= n) {
        int c = reader_peek(r);
        if (c == '"' || c < 0)
            break;
        (void)reader_next(r);
        if (c == '\\')
            used += read_escape(r, out + used);
        else
            out[used++] = (char)c;
    }
    return used;
}

/* ---- values -----------------------------------------------------------------------------------
 */

static enum status scan_word(struct scan *s, const char *word)
{
    for (; *word; word++)
        if (reader_next(s->r) != *word)
            return wrong(s, "not a JSON value");
    return OK;
}

static int skip_digits(struct byte_reader *r)
{
    int n = 0;
    while (reader_peek(r) >= '0' && reader_peek(r) <= '9') {
        (void)reader_next(r);
        n = 1;
    }
    return n;
}

static enum status scan_number(struct scan *s)
{
    struct byte_reader *r = s->r;
    if (reader_peek(r) == '-')
        (void)reader_next(r);
    if (reader_peek(r) == '0')
        (void)reader_next(r);
    else if (!skip_digits(r))
        return wrong(s, "not a JSON value");
    if (reader_peek(r) == '.') {
        (void)reader_next(r);
        if (!skip_digits(r))
            return wrong(s, "digits are missing behind the point");
    }
    if ((reader_peek(r) | 0x20) == 'e') {
        (void)reader_next(r);
        if (reader_peek(r) == '+' || reader_peek(r) == '-')
            (void)reader_next(r);
        if (!skip_digits(r))
            return wrong(s, "the exponent has no digits");
    }
    return OK;
}

static enum status scan_value(struct scan *s, int depth, int64_t *n_elements);

static enum status scan_array(struct scan *s, int depth, int64_t *n_elements)
{
    int64_t n = 0;
    (void)reader_next(s->r);
    if (skip_space(s->r) == ']') {
        (void)reader_next(s->r);
        *n_elements = 0;
        return OK;
    }
    for (;;) {
        TRY(scan_value(s, depth + 1, NULL));
        n++;
        int c = skip_space(s->r);
        if (c != ',' && c != ']')
            return wrong(s, "',' or ']' expected");
        (void)reader_next(s->r);
        if (c == ']')
            break;
    }
    *n_elements = n;
    return OK;
}

/* The beginning of an object or the place behind a member: 1 and its key, 0 at the end. */
static enum status next_member(struct scan *s, int is_first, char key[JSON_KEY_BYTES], int *more)
{
    int c = skip_space(s->r);
    *more = 0;
    if (c == '}') {
        (void)reader_next(s->r);
        return OK;
    }
    if (!is_first) {
        if (c != ',')
            return wrong(s, "',' or '}' expected");
        (void)reader_next(s->r);
        c = skip_space(s->r);
    }
    if (c != '"')
        return wrong(s, "a key in quotes expected");
    TRY(scan_string(s, key));
    if (skip_space(s->r) != ':')
        return wrong(s, "':' expected");
    (void)reader_next(s->r);
    *more = 1;
    return OK;
}

static enum status scan_object(struct scan *s, int depth)
{
    int more;
    (void)reader_next(s->r);
    for (int is_first = 1;; is_first = 0) {
        TRY(next_member(s, is_first, NULL, &more));
        if (!more)
            return OK;
        TRY(scan_value(s, depth + 1, NULL));
    }
}

static enum status scan_value(struct scan *s, int depth, int64_t *n_elements)
{
    int64_t ignored;
    int c = skip_space(s->r);
    if (depth > MAX_DEPTH)
        return wrong(s, "nested too deeply");
    switch (c) {
    case '"':
        return scan_string(s, NULL);
    case '[':
        return scan_array(s, depth, n_elements ? n_elements : &ignored);
    case '{':
        return scan_object(s, depth);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        return scan_number(s);
    }
}

void json_array_begin(struct byte_reader *r, int64_t at)
{
    reader_seek(r, at + 1);
}

int json_array_next(struct byte_reader *r, int64_t *value)
{
    int c = skip_space(r);
    if (c == ',') {
        (void)reader_next(r);
        c = skip_space(r);
    }
    int negative = c == '-';
    if (negative) {
        (void)reader_next(r);
        c = reader_peek(r);
    }
    if (c < '0' || c > '9')
        return 0;
    *value = 0;
    for (; c >= '0' && c <= '9'; c = reader_peek(r)) {
        int64_t digit = c - '0';
        *value = *value > (INT64_MAX - digit) / 10 ? INT64_MAX : *value * 10 + digit;
        (void)reader_next(r);
    }
    *value = negative ? -*value : *value;
    return c != '.' && (c | 0x20) != 'e';
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static enum member_kind kind_of(int c)
{
    return c == '"'   ? MEMBER_STRING
           : c == '[' ? MEMBER_ARRAY
           : c == 'n' ? MEMBER_NULL
                      : MEMBER_OTHER;
}

static enum status note_member(struct scan *s, struct json_member *wanted, size_t n_wanted,
                               const char *key)
{
    struct json_member *member = NULL;
    for (size_t i = 0; i < n_wanted; i++)
        if (strcmp(wanted[i].key, key) == 0)
            member = &wanted[i];
    if (!member)
        return scan_value(s, 1, NULL);
    if (member->kind != MEMBER_ABSENT)
        return FAIL(ERR_DATA, "has \"%s\" twice", key);
    member->kind = kind_of(skip_space(s->r));
    member->at = reader_at(s->r);
    return scan_value(s, 1, &member->n_elements);
}

enum status json_line_scan(struct byte_reader *r, struct json_member *wanted, size_t n_wanted,
                           char first_key[JSON_KEY_BYTES], int *is_blank)
{
    struct scan s = {r, reader_at(r)};
    int c = skip_space(r), more = 0;
    first_key[0] = '\0';
    *is_blank = c == '\n' || c < 0;
    if (!*is_blank) {
        if (c != '{')
            return FAIL(ERR_DATA, "not a JSON object; each line of a JSONL file is one");
        (void)reader_next(r);
        for (int is_first = 1;; is_first = 0) {
            char key[JSON_KEY_BYTES];
            TRY(next_member(&s, is_first, key, &more));
            if (!more)
                break;
            if (is_first)
                memcpy(first_key, key, sizeof(key));
            TRY(note_member(&s, wanted, n_wanted, key));
        }
        c = skip_space(r);
    }
    if (c >= 0 && c != '\n')
        return wrong(&s, "text behind the object");
    if (c == '\n')
        (void)reader_next(r);
    return r->status;
}
