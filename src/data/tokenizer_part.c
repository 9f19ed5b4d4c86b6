/* tokenizer_part.c: the ids of a text that comes in parts, the same as those of the whole.
 *
 * Of a part, everything is encoded that no text behind it could change, and the rest waits for the
 * next part. What could change with more text, from the outside in:
 *
 *     a character that is cut off          waits
 *     an added token that may be cut off   waits, with the space that it would strip
 *     a normal form                        is cut only where the two sides normalise on their own
 *     a match of a split pattern           waits when the pattern had to look behind the end
 *     a merge                              a piece is cut only where no merge of the file crosses
 *
 * Patterns that look back would need what came before: texts are not cut for them. Nor is one cut
 * at an added token that has to stand alone, as far as it looks around itself.
 */
#include <string.h>

#include "base/utf8.h"
#include "base/vec.h"
#include "data/tokenizer_internal.h"

static const struct part_place run_place = {PLACE_RUN, 0};

/* Length without a character at the end that may be cut off. */
static size_t whole_characters(const char *text, size_t n_bytes)
{
    size_t start = n_bytes;
    while (start > 0 && n_bytes - start < 3 && ((uint8_t)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return n_bytes;
    uint8_t lead = (uint8_t)text[start - 1];
    size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return length > n_bytes - (start - 1) ? start - 1 : n_bytes;
}

/* Normalised text, cut at added tokens as in encode_normalized(). */
static enum status encode_normalized_open(struct encoder *e, const char *text, size_t n_bytes,
                                          struct part_place *place, struct token_list *out,
                                          size_t *n_done)
{
    const struct added_set *set = &e->t->added_normalized;
    const struct added_match none = {.id = 0};
    struct added_match m = added_set_find(set, text, n_bytes, &none, 0);
    size_t at = 0, n_sure = 0;
    int depth = 0;
    for (; added_match_is_final(set, m, n_bytes); m = added_set_find(set, text, n_bytes, &m, 0)) {
        encoder_set_place(e, text + at, *place);
        TRY(split_and_encode(e, text + at, m.start - at, out));
        TRY(vec_push(out, m.id));
        at = m.end;
        *place = run_place;
    }
    size_t end = MIN(m.start, added_set_clear(set, text, n_bytes, at));
    for (const size_t n_ids = out->n; end > at;) {
        encoder_set_place(e, text + at, *place);
        TRY(split_and_encode_open(e, text + at, end - at, out, &n_sure, &depth));
        size_t token = added_set_around(set, text, n_bytes, at + n_sure);
        if (n_sure == 0 || token == SIZE_MAX)
            break;
        out->n = n_ids;
        n_sure = 0;
        end = token < end ? token : at;
    }
    *n_done = at + n_sure;
    if (n_sure > 0)
        *place = (struct part_place){PLACE_PART, depth};
    else if (at > 0) /* the run goes on, with a new piece */
        *place = (struct part_place){PLACE_PART, 0};
    return OK;
}

/* Where text[0..n_bytes) has to be cut so that n_rest bytes of its normal form lie behind the cut.
 * When there is no such place: 0, and *shorter is the next cut before it. */
static enum status raw_cut(struct encoder *e, const char *text, size_t n_bytes, size_t n_rest,
                           size_t *cut, size_t *shorter)
{
    size_t at = n_bytes, n_behind = 0;
    *cut = *shorter = 0;
    while (n_behind < n_rest) {
        const char *normal;
        size_t before = normal_boundary(e->t, text, at), n_normal;
        if (before == 0)
            return OK;
        TRY(normalize(e, text + before, at - before, 0, &normal, &n_normal));
        n_behind += n_normal;
        at = before;
    }
    *(n_behind == n_rest ? cut : shorter) = at;
    return OK;
}

/* Text without added tokens that are looked for before it is normalised. */
static enum status encode_segment_open(struct encoder *e, const char *text, size_t n_bytes,
                                       struct part_place *place, struct token_list *out,
                                       size_t *n_done)
{
    const struct part_place before = *place;
    const size_t n_ids = out->n;
    size_t end = e->t->normalizer ? normal_boundary(e->t, text, n_bytes) : n_bytes;
    *n_done = 0;
    while (end > 0) {
        const char *normal;
        size_t n_normal, n_sure, shorter;
        TRY(normalize(e, text, end, place->kind != PLACE_PART, &normal, &n_normal));
        TRY(encode_normalized_open(e, normal, n_normal, place, out, &n_sure));
        if (n_sure == 0)
            break;
        if (normal == text) {
            *n_done = n_sure;
            return OK;
        }
        TRY(raw_cut(e, text, end, n_normal - n_sure, n_done, &shorter));
        if (*n_done > 0)
            return OK;
        end = shorter;
        out->n = n_ids;
        *place = before;
    }
    out->n = n_ids;
    *place = before;
    return OK;
}

/* Well-formed text, cut at added tokens as in encode_valid(). */
static enum status encode_valid_open(struct encoder *e, const char *text, size_t n_bytes,
                                     struct token_list *out, size_t *n_done)
{
    const struct added_set *set = &e->t->added_raw;
    const struct added_match none = {.id = 0};
    struct added_match m = added_set_find(set, text, n_bytes, &none, 0);
    size_t at = 0, n_sure = 0;
    for (; added_match_is_final(set, m, n_bytes); m = added_set_find(set, text, n_bytes, &m, 0)) {
        TRY(encode_valid(e, text + at, m.start - at, e->place, 0, out));
        TRY(vec_push(out, m.id));
        at = m.end;
        e->place = run_place;
    }
    size_t end = MIN(m.start, added_set_clear(set, text, n_bytes, at));
    const struct part_place place = e->place;
    for (const size_t n_ids = out->n; end > at;) {
        TRY(encode_segment_open(e, text + at, end - at, &e->place, out, &n_sure));
        size_t token = added_set_around(set, text, n_bytes, at + n_sure);
        if (n_sure == 0 || token == SIZE_MAX)
            break;
        out->n = n_ids;
        e->place = place;
        n_sure = 0;
        end = token < end ? token : at;
    }
    *n_done = at + n_sure;
    return OK;
}

static enum status encode_open(struct encoder *e, const char *text, size_t n_bytes,
                               struct token_list *out, size_t *n_done)
{
    *n_done = 0;
    n_bytes = whole_characters(text, n_bytes);
    for (;;) {
        size_t at = *n_done, n_valid = utf8_prefix(text + at, n_bytes - at), n_sure;
        if (at + n_valid == n_bytes) {
            TRY(encode_valid_open(e, text + at, n_valid, out, &n_sure));
            *n_done = at + n_sure;
            return OK;
        }
        TRY(encode_valid(e, text + at, n_valid, e->place, 0, out));
        TRY(bpe_encode_byte(e, (uint8_t)text[at + n_valid], out));
        *n_done = at + n_valid + 1;
        e->place = run_place;
    }
}

enum status encoder_encode_part(struct encoder *e, const char *text, size_t n_bytes, int is_last,
                                struct token_list *out, size_t *n_done)
{
    if (!is_last)
        return encode_open(e, text, n_bytes, out, n_done);
    for (size_t at = 0; at < n_bytes;) {
        size_t n_valid = utf8_prefix(text + at, n_bytes - at);
        TRY(encode_valid(e, text + at, n_valid, e->place, 0, out));
        at += n_valid;
        e->place = run_place;
        if (at < n_bytes)
            TRY(bpe_encode_byte(e, (uint8_t)text[at++], out));
    }
    e->place = (struct part_place){PLACE_TEXT, 0};
    *n_done = n_bytes;
    return OK;
}
