/* document.c: text waits until there is a part's worth of it, then as much is encoded as what comes
 * behind cannot change. Where that is nothing (a word without an end), twice as much is waited for.
 */
#include "data/document.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"

enum {
    PART_BYTES = 1 << 17,
    /* A word of so many bytes takes them: itself in a buffer that doubled and was copied once, a
     * symbol, a place in the heap and an id for each of its bytes, in lists that doubled too. */
    BYTES_PER_BYTE = 80,
};

void document_init(struct document *d, const struct tokenizer *t, struct token_writer *w,
                   int64_t most_bytes)
{
    *d = (struct document){.tokenizer = t, .writer = w, .enough = PART_BYTES};
    d->most = MAX((size_t)(MAX(most_bytes, (int64_t)0) / BYTES_PER_BYTE), (size_t)PART_BYTES);
}

void document_release(struct document *d)
{
    encoder_free(d->encoder);
    mem_free(d->text);
    token_list_release(&d->ids);
    *d = (struct document){0};
}

int64_t document_bytes(void)
{
    return 2 * PART_BYTES + (int64_t)encoder_bytes(PART_BYTES);
}

static enum status reserve(struct document *d, size_t n_bytes)
{
    if (n_bytes <= d->capacity)
        return OK;
    char *grown = mem_realloc(d->text, n_bytes);
    if (!grown)
        return FAIL(ERR_MEMORY, "could not allocate %zu bytes for a piece of text", n_bytes);
    d->text = grown;
    d->capacity = n_bytes;
    return OK;
}

static enum status encode(struct document *d, int is_last, size_t *n_done)
{
    if (!d->encoder)
        TRY(encoder_new(&d->encoder, d->tokenizer));
    d->ids.n = 0;
    TRY(encoder_encode_part(d->encoder, d->text, d->n, is_last, &d->ids, n_done));
    d->n -= *n_done;
    memmove(d->text, d->text + *n_done, d->n);
    return token_writer_add(d->writer, d->ids.items, NULL, d->ids.n);
}

/* Nothing could be encoded: more text has to wait. */
static enum status wait_for_more(struct document *d)
{
    char have[BYTES_TEXT];
    if (d->enough >= d->most)
        return FAIL(
            ERR_FIT,
            "%s of text without a place where it can be cut (a word that long): host_memory "
            "leaves no room to tokenise more in one piece. Raise host_memory, or put "
            "spaces or line breaks into the text",
            format_bytes(have, (int64_t)d->n));
    d->enough = MIN(2 * d->enough, d->most);
    return OK;
}

static enum status begin(struct document *d)
{
    int32_t ids[DOCUMENT_IDS];
    if (d->begun)
        return OK;
    d->begun = 1;
    return token_writer_add(d->writer, ids, NULL, tokenizer_document_begin(d->tokenizer, ids));
}

enum status document_add(struct document *d, const char *text, size_t n_bytes)
{
    TRY(begin(d));
    while (n_bytes > 0) {
        size_t n = MIN(n_bytes, d->enough - d->n), n_done;
        TRY(reserve(d, d->enough));
        memcpy(d->text + d->n, text, n);
        d->n += n;
        text += n;
        n_bytes -= n;
        if (d->n < d->enough)
            return OK;
        TRY(encode(d, 0, &n_done));
        if (n_done == 0)
            TRY(wait_for_more(d));
        else
            d->enough = MAX((size_t)PART_BYTES, MIN(2 * d->n, d->most));
    }
    return OK;
}

enum status document_end(struct document *d)
{
    size_t n_done;
    int32_t ids[DOCUMENT_IDS];
    TRY(begin(d));
    TRY(reserve(d, 1));
    TRY(encode(d, 1, &n_done));
    d->begun = 0;
    return token_writer_add(d->writer, ids, NULL, tokenizer_document_end(d->tokenizer, ids));
}
