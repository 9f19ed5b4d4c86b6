#include "report/pickle.h"

#include <string.h>

#include "base/utf8.h"

/* Opcodes of the protocol, as the pickletools module of Python documents them. */
enum opcode {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    SETITEMS = 'u',
    APPENDS = 'e',
    BININT1 = 'K',
    BININT2 = 'M',
    BININT = 'J',
    LONG1 = 0x8a,
    BINUNICODE = 'X',
    LONG_BINPUT = 'r',
    LONG_BINGET = 'j'
};

enum { BATCH = 1000 };

static void add_byte(struct pickle *p, int x)
{
    char byte = (char)x;
    str_add_n(p->out, &byte, 1);
}

/* Least significant byte first. */
static void add_bytes(struct pickle *p, uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        add_byte(p, (int)(x >> 8 * i & 0xff));
}

void pickle_begin(struct pickle *p)
{
    add_byte(p, PROTO);
    add_byte(p, 2);
}

void pickle_int(struct pickle *p, int64_t x)
{
    if (x >= 0 && x < 0x100) {
        add_byte(p, BININT1);
        add_bytes(p, (uint64_t)x, 1);
    } else if (x >= 0 && x < 0x10000) {
        add_byte(p, BININT2);
        add_bytes(p, (uint64_t)x, 2);
    } else if (x >= INT32_MIN && x <= INT32_MAX) {
        add_byte(p, BININT);
        add_bytes(p, (uint64_t)x, 4);
    } else {
        add_byte(p, LONG1);
        add_byte(p, 8);
        add_bytes(p, (uint64_t)x, 8);
    }
}

static void add_utf8(struct str *out, const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        size_t good = utf8_prefix(text, n);
        str_add_n(out, text, good);
        if (good < n) {
            str_add(out, "\xef\xbf\xbd");
            good++;
        }
        text += good;
        n -= good;
    }
}

static void add_new_text(struct pickle *p, const char *text, int32_t number)
{
    struct str whole = {0};
    add_utf8(&whole, text);
    add_byte(p, BINUNICODE);
    add_bytes(p, whole.n, 4);
    str_add_n(p->out, str_text(&whole), whole.n);
    add_byte(p, LONG_BINPUT);
    add_bytes(p, (uint64_t)number, 4);
    p->out->failed |= whole.failed;
    str_release(&whole);
}

void pickle_text(struct pickle *p, const char *text)
{
    int32_t number;
    size_t before = p->texts.texts.n;
    if (p->status == OK)
        p->status = names_number(&p->texts, text, &number);
    if (p->status != OK)
        return;
    if (p->texts.texts.n > before) {
        add_new_text(p, text, number);
    } else {
        add_byte(p, LONG_BINGET);
        add_bytes(p, (uint64_t)number, 4);
    }
}

void pickle_open_dict(struct pickle *p)
{
    add_byte(p, EMPTY_DICT);
    add_byte(p, MARK);
}

void pickle_close_dict(struct pickle *p)
{
    add_byte(p, SETITEMS);
}

void pickle_open_list(struct pickle *p)
{
    BUG_ON(p->depth == PICKLE_DEPTH);
    p->n_items[p->depth++] = 0;
    add_byte(p, EMPTY_LIST);
    add_byte(p, MARK);
}

void pickle_next(struct pickle *p)
{
    int64_t *n = &p->n_items[p->depth - 1];
    if (*n == BATCH) {
        add_byte(p, APPENDS);
        add_byte(p, MARK);
        *n = 0;
    }
    ++*n;
}

void pickle_close_list(struct pickle *p)
{
    add_byte(p, APPENDS);
    p->depth--;
}

enum status pickle_end(struct pickle *p)
{
    enum status status = p->status;
    add_byte(p, STOP);
    names_release(&p->texts);
    if (status != OK)
        return status;
    return str_status(p->out);
}

void pickle_set_int(struct pickle *p, const char *key, int64_t x)
{
    pickle_text(p, key);
    pickle_int(p, x);
}

void pickle_set_text(struct pickle *p, const char *key, const char *text)
{
    pickle_text(p, key);
    pickle_text(p, text);
}
