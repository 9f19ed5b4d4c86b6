/* utf8_stream.c: bytes as they come into whole characters. */
#include "train/generate.h"

#include <utf8proc.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/* Bytes of the character that starts with `lead`; 0 when none does. */
static int expected_bytes(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/* True when the pending bytes are the beginning of a character that may still become complete. */
static bool may_continue(const struct utf8_stream *s)
{
    if (s->n_pending >= expected_bytes(s->pending[0]))
        return false;
    if (s->n_pending < 2)
        return true;
    unsigned char lead = s->pending[0], next = s->pending[1];
    bool continues = (next & 0xC0) == 0x80 && !(lead == 0xE0 && next < 0xA0) &&
                     !(lead == 0xED && next > 0x9F) && !(lead == 0xF0 && next < 0x90) &&
                     !(lead == 0xF4 && next > 0x8F);
    return continues && (s->n_pending < 3 || (s->pending[2] & 0xC0) == 0x80);
}

static bool is_complete(const struct utf8_stream *s)
{
    utf8proc_int32_t point;
    return s->n_pending == expected_bytes(s->pending[0]) &&
           utf8proc_iterate(s->pending, s->n_pending, &point) == s->n_pending;
}

static void add_byte(struct utf8_stream *s, unsigned char byte, struct str *out)
{
    s->pending[s->n_pending++] = byte;
    if (is_complete(s)) {
        str_add_n(out, (const char *)s->pending, (size_t)s->n_pending);
        s->n_pending = 0;
    } else if (!may_continue(s)) {
        /* What came before the byte is broken; the byte itself may start a character. */
        bool alone = s->n_pending == 1;
        str_add(out, REPLACEMENT);
        s->n_pending = 0;
        if (!alone)
            add_byte(s, byte, out);
    }
}

void utf8_stream_add(struct utf8_stream *s, const char *bytes, size_t n_bytes, struct str *out)
{
    for (size_t i = 0; i < n_bytes; i++)
        add_byte(s, (unsigned char)bytes[i], out);
}

void utf8_stream_finish(struct utf8_stream *s, struct str *out)
{
    if (s->n_pending > 0)
        str_add(out, REPLACEMENT);
    s->n_pending = 0;
}
