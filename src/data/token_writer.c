/* token_writer.c: writing token files. The header holds the count, so it is written last, over the
 * room kept for it; then the file takes its place. Which tokens are labels is collected in a second
 * file, once there is one that is not, where examples end in a third, and both are put behind the
 * ids in the end. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/output.h"
#include "base/str.h"
#include "data/token_file.h"

enum { HEADER_BYTES = 1024, BUFFER_BYTES = 65536, MASK_BYTES = 8192, ENDS = 1024 };

struct token_writer {
    struct output out;
    struct file_out mask; /* fd -1: every token so far is a label */
    struct file_out ends; /* of examples; fd -1: none has ended */
    struct str mask_path, ends_path;
    const char *path; /* out.final */
    enum token_format format;
    int64_t vocab_size, n_tokens, n_ignored;
    enum token_dtype dtype;
    int64_t n_bits; /* in the mask */
    size_t n_buffered;
    uint8_t buffer[BUFFER_BYTES];
    uint8_t bits[MASK_BYTES];
    int64_t n_examples;
    uint8_t end_bytes[ENDS * 8]; /* the newest ends */
    struct example_counts counts;
};

size_t token_writer_bytes(void)
{
    return sizeof(struct token_writer);
}

int64_t token_writer_n_tokens(const struct token_writer *w)
{
    return w->n_tokens;
}

int64_t token_writer_n_ignored(const struct token_writer *w)
{
    return w->n_ignored;
}

enum status token_writer_open(struct token_writer **out, const char *path, enum token_format format,
                              int64_t vocab_size)
{
    *out = NULL;
    struct token_writer *w;
    enum status status;
    TRY(mem_try_array(&w, 1, sizeof(*w)));
    w->format = format;
    w->vocab_size = vocab_size;
    w->dtype = token_dtype_for_vocab(vocab_size);
    w->mask.fd = w->ends.fd = -1;
    TRY_GOTO(output_open(&w->out, path), out);
    w->path = w->out.final;
    str_addf(&w->mask_path, "%s.mask-%ld", w->path, (long)getpid());
    str_addf(&w->ends_path, "%s.ends-%ld", w->path, (long)getpid());
    TRY_GOTO(str_status(&w->mask_path), out);
    TRY_GOTO(str_status(&w->ends_path), out);
    if (lseek(w->out.file.fd, 0, SEEK_SET) != 0) {
        status = FAIL(ERR_USAGE,
                      "%s: a pipe cannot take a token file, whose header is written last; give the "
                      "name of a file",
                      path);
        goto out;
    }
    TRY_GOTO(file_out_write(&w->out.file, w->buffer, HEADER_BYTES), out);
    *out = w;
    return OK;
out:
    token_writer_abandon(w);
    return status;
}

/* ---- ids ---- */

static enum status flush(struct token_writer *w)
{
    size_t n = w->n_buffered;
    w->n_buffered = 0;
    return file_out_write(&w->out.file, w->buffer, n);
}

static enum status add_ids(struct token_writer *w, const int32_t *ids, size_t n)
{
    size_t width = (size_t)token_dtype_bytes(w->dtype);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= w->vocab_size)
            return FAIL(ERR_DATA,
                        "token %d is outside the vocabulary of %" PRId64
                        ": use the tokenizer that belongs to the model, or a model with vocab_size "
                        "of at least %d",
                        (int)ids[i], w->vocab_size, (int)ids[i] + 1);
        if (w->n_buffered == BUFFER_BYTES)
            TRY(flush(w));
        uint8_t *to = w->buffer + w->n_buffered;
        to[0] = (uint8_t)ids[i];
        to[1] = (uint8_t)(ids[i] >> 8);
        if (width == 4) {
            to[2] = (uint8_t)(ids[i] >> 16);
            to[3] = (uint8_t)(ids[i] >> 24);
        }
        w->n_buffered += width;
    }
    return OK;
}

/* ---- labels ---- */

static enum status flush_bits(struct token_writer *w)
{
    size_t used = (size_t)((w->n_bits + 7) / 8 - w->mask.n_bytes);
    return file_out_write(&w->mask, w->bits, used);
}

static enum status add_bit(struct token_writer *w, int is_label)
{
    size_t at = (size_t)(w->n_bits / 8 - w->mask.n_bytes);
    if (at == MASK_BYTES) {
        TRY(flush_bits(w));
        at = 0;
    }
    uint8_t bit = (uint8_t)(is_label << (w->n_bits % 8));
    w->bits[at] = w->n_bits % 8 == 0 ? bit : w->bits[at] | bit;
    w->n_bits++;
    return OK;
}

/* The mask begins with the first token that is no label; all before it are. */
static enum status add_labels(struct token_writer *w, const int32_t *labels, size_t n)
{
    size_t n_ignored = 0;
    for (size_t i = 0; labels && i < n; i++)
        n_ignored += labels[i] == LABEL_IGNORED;
    w->n_ignored += (int64_t)n_ignored;
    if (w->format == TOKEN_FORMAT_LLMC || (w->mask.fd < 0 && n_ignored == 0))
        return OK;
    if (w->mask.fd < 0) {
        TRY(file_out_open(&w->mask, str_text(&w->mask_path)));
        while (w->n_bits < w->n_tokens)
            TRY(add_bit(w, 1));
    }
    for (size_t i = 0; i < n; i++)
        TRY(add_bit(w, !labels || labels[i] != LABEL_IGNORED));
    return OK;
}

/* A file that was collected on the side, behind what there is. */
static enum status append_file(struct token_writer *w, const char *path)
{
    struct file_in in;
    enum status status = OK;
    TRY(file_in_open(&in, path));
    for (int64_t at = 0; at < in.n_bytes && status == OK; at += BUFFER_BYTES) {
        size_t n = (size_t)MIN(in.n_bytes - at, (int64_t)BUFFER_BYTES);
        status = file_in_read(&in, at, w->buffer, n);
        if (status == OK)
            status = file_out_write(&w->out.file, w->buffer, n);
    }
    file_in_close(&in);
    return status;
}

static enum status append_mask(struct token_writer *w)
{
    if (w->mask.fd < 0)
        return OK;
    TRY(flush_bits(w));
    return append_file(w, str_text(&w->mask_path));
}

/* ---- examples ---- */

static void put(uint8_t *to, int64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)((uint64_t)value >> (8 * i));
}

static enum status flush_ends(struct token_writer *w)
{
    return file_out_write(&w->ends, w->end_bytes, (size_t)(w->n_examples * 8 - w->ends.n_bytes));
}

enum status token_writer_end_example(struct token_writer *w)
{
    BUG_ON(w->format != TOKEN_FORMAT_SNUG);
    if (w->ends.fd < 0)
        TRY(file_out_open(&w->ends, str_text(&w->ends_path)));
    if (w->n_examples * 8 - w->ends.n_bytes == ENDS * 8)
        TRY(flush_ends(w));
    put(w->end_bytes + (w->n_examples * 8 - w->ends.n_bytes), w->n_tokens, 8);
    w->n_examples++;
    return OK;
}

void token_writer_set_counts(struct token_writer *w, const struct example_counts *counts)
{
    w->counts = *counts;
}

static enum status append_ends(struct token_writer *w)
{
    if (w->ends.fd < 0)
        return OK;
    TRY(flush_ends(w));
    return append_file(w, str_text(&w->ends_path));
}

/* ---- all ---- */

enum status token_writer_add(struct token_writer *w, const int32_t *ids, const int32_t *labels,
                             size_t n)
{
    if (w->format == TOKEN_FORMAT_LLMC && n > (size_t)(INT32_MAX - w->n_tokens))
        return FAIL(ERR_DATA, "%s: an llm.c token file holds fewer than 2^31 tokens; write several",
                    w->path);
    TRY(add_ids(w, ids, n));
    TRY(add_labels(w, labels, n));
    w->n_tokens += (int64_t)n;
    return OK;
}

static enum status write_header(struct token_writer *w)
{
    uint8_t header[HEADER_BYTES] = {0};
    int wide = w->dtype == TOKEN_U32;
    if (w->format == TOKEN_FORMAT_LLMC) {
        put(header, wide ? 20240801 : 20240520, 4);
        put(header + 4, wide ? 7 : 1, 4);
        put(header + 8, w->n_tokens, 4);
    } else {
        memcpy(header, "SNUG.TOK", 8);
        put(header + 8, w->n_examples ? 2 : 1, 4);
        put(header + 12, token_dtype_bytes(w->dtype), 4);
        put(header + 16, w->n_tokens, 8);
        put(header + 24, w->vocab_size, 8);
        put(header + 32, w->mask.fd >= 0, 4);
        put(header + 40, w->n_examples, 8);
        put(header + 48, w->counts.n_read, 8);
        put(header + 56, w->counts.n_truncated, 8);
        put(header + 64, w->counts.n_dropped, 8);
        put(header + 72, w->counts.n_unlabelled, 8);
    }
    if (lseek(w->out.file.fd, 0, SEEK_SET) != 0)
        return FAIL(ERR_IO, "%s: cannot go back to the header", w->path);
    return file_out_write(&w->out.file, header, sizeof(header));
}

enum status token_writer_commit(struct token_writer *w)
{
    enum status status;
    TRY_GOTO(flush(w), out);
    TRY_GOTO(append_mask(w), out);
    TRY_GOTO(append_ends(w), out);
    TRY_GOTO(write_header(w), out);
    TRY_GOTO(output_commit(&w->out), out);
out:
    token_writer_abandon(w);
    return status;
}

static void remove_side_file(struct file_out *f, struct str *path)
{
    if (f->fd >= 0) {
        (void)!file_out_close(f);
        (void)unlink(str_text(path));
    }
    str_release(path);
}

void token_writer_abandon(struct token_writer *w)
{
    if (!w)
        return;
    output_abandon(&w->out);
    remove_side_file(&w->mask, &w->mask_path);
    remove_side_file(&w->ends, &w->ends_path);
    mem_free(w);
}
