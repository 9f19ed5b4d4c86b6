/* tokenizer_encode.c: the line from text to ids (drawn in tokenizer_internal.h), and back. */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "data/tokenizer_internal.h"

enum { CACHE_SLOTS = 16384 }; /* 1 MiB */

/* Beside the cache: a part in its normal form, as code points and with its spaces, and an id for
 * each of its bytes in a list that doubled to hold them. */
size_t encoder_bytes(size_t part_bytes)
{
    return sizeof(struct encoder) + CACHE_SLOTS * sizeof(struct cache_slot) +
           part_bytes * (sizeof(int32_t) + 2) + 2 * part_bytes * sizeof(int32_t);
}

void token_list_release(struct token_list *list)
{
    vec_release(list);
}

void encoder_set_place(struct encoder *e, const char *text, struct part_place place)
{
    e->text_start = place.kind == PLACE_TEXT ? text : NULL;
    e->resumed = place.kind == PLACE_PART ? text : NULL;
    e->resumed_depth = place.depth;
}

/* Cuts at added tokens that are looked for in normalised text; the rest is split and merged. */
enum status encode_normalized(struct encoder *e, const char *text, size_t n_bytes,
                              struct part_place place, unsigned flags, struct token_list *out)
{
    int skip_special = (flags & ENCODE_PLAIN_TEXT) != 0;
    struct added_match m = {.id = 0};
    while (m.id >= 0) {
        size_t at = m.end;
        m = added_set_find(&e->t->added_normalized, text, n_bytes, &m, skip_special);
        encoder_set_place(e, text + at, at == 0 ? place : (struct part_place){PLACE_RUN, 0});
        TRY(split_and_encode(e, text + at, m.start - at, out));
        if (m.id >= 0)
            TRY(vec_push(out, m.id));
    }
    return OK;
}

/* Cuts well-formed text at added tokens that are looked for in the text as it is. */
enum status encode_valid(struct encoder *e, const char *text, size_t n_bytes,
                         struct part_place place, unsigned flags, struct token_list *out)
{
    int skip_special = (flags & ENCODE_PLAIN_TEXT) != 0;
    struct added_match m = {.id = 0};
    while (m.id >= 0) {
        size_t at = m.end;
        m = added_set_find(&e->t->added_raw, text, n_bytes, &m, skip_special);
        const char *normal;
        size_t n_normal;
        TRY(normalize(e, text + at, m.start - at, place.kind != PLACE_PART, &normal, &n_normal));
        TRY(encode_normalized(e, normal, n_normal, place, flags, out));
        if (m.id >= 0)
            TRY(vec_push(out, m.id));
        place = (struct part_place){PLACE_RUN, 0};
    }
    return OK;
}

static enum status add_ids(struct token_list *out, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        TRY(vec_push(out, ids[i]));
    return OK;
}

enum status encoder_encode(struct encoder *e, const char *text, size_t n_bytes, unsigned flags,
                           struct token_list *out)
{
    struct part_place place = {PLACE_TEXT, 0};
    if (flags & ENCODE_TEMPLATE)
        TRY(add_ids(out, e->t->prefix, e->t->n_prefix));
    for (size_t at = 0; at < n_bytes;) {
        size_t n_valid = utf8_prefix(text + at, n_bytes - at);
        TRY(encode_valid(e, text + at, n_valid, place, flags, out));
        at += n_valid;
        place.kind = PLACE_RUN;
        if (at < n_bytes)
            TRY(bpe_encode_byte(e, (uint8_t)text[at++], out));
    }
    if (flags & ENCODE_TEMPLATE)
        TRY(add_ids(out, e->t->suffix, e->t->n_suffix));
    return OK;
}

enum status encoder_new(struct encoder **out, const struct tokenizer *t)
{
    *out = NULL;
    struct encoder *e;
    TRY(mem_try_array(&e, 1, sizeof(*e)));
    enum status status = encoder_init(e, t, CACHE_SLOTS);
    if (status != OK) {
        mem_free(e);
        return status;
    }
    *out = e;
    return OK;
}

void encoder_free(struct encoder *e)
{
    if (!e)
        return;
    encoder_release(e);
    mem_free(e);
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes,
                             unsigned flags, struct token_list *out)
{
    struct encoder e;
    TRY(encoder_init(&e, t, 0));
    enum status status = encoder_encode(&e, text, n_bytes, flags, out);
    encoder_release(&e);
    return status;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n_bytes)
{
    *n_bytes = 0;
    if (id < 0 || id >= t->n_ids || !t->tokens[id].bytes)
        return NULL;
    *n_bytes = t->tokens[id].n_bytes;
    return t->tokens[id].bytes;
}

int tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_ids && t->tokens[id].is_special;
}

static void add_token(const struct tokenizer *t, const char *bytes, size_t n_bytes, int is_first,
                      struct str *out)
{
    if (is_first && t->strip == STRIP_FIRST_TOKEN) {
        for (size_t i = 0; i < n_bytes; i++)
            if (bytes[i] != ' ')
                str_add_n(out, bytes + i, 1);
        return;
    }
    int skip = is_first && t->strip == STRIP_FIRST_SPACE && n_bytes > 0 && bytes[0] == ' ';
    str_add_n(out, bytes + skip, n_bytes - (size_t)skip);
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                             unsigned flags, struct str *out)
{
    int is_first = 1;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_token_bytes(t, ids[i], &n_bytes);
        if (!bytes)
            return FAIL(ERR_DATA, "%s: token %d at position %zu is not in the vocabulary of %lld",
                        t->what, (int)ids[i], i, (long long)t->n_ids);
        if ((flags & DECODE_SKIP_SPECIAL) && t->tokens[ids[i]].is_special)
            continue;
        add_token(t, bytes, n_bytes, is_first, out);
        is_first = 0;
    }
    return str_status(out);
}
