/* token_writer.c: writing llm.c token files. The header holds the count, so it is written last,
 * over the room kept for it; then the file takes its place. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/output.h"
#include "data/token_file.h"

enum { HEADER_INTS = 256, BUFFER_BYTES = 65536 };

struct token_writer {
    struct output out;
    const char *path; /* out.final */
    int64_t vocab_size, n_tokens;
    enum token_dtype dtype;
    size_t n_buffered;
    uint8_t buffer[BUFFER_BYTES];
};

enum status token_writer_open(struct token_writer **out, const char *path, int64_t vocab_size)
{
    *out = NULL;
    struct token_writer *w;
    enum status status;
    TRY(mem_try_array(&w, 1, sizeof(*w)));
    TRY_GOTO(output_open(&w->out, path), out);
    w->path = w->out.final;
    w->vocab_size = vocab_size;
    w->dtype = token_dtype_for_vocab(vocab_size);
    if (lseek(w->out.file.fd, 0, SEEK_SET) != 0) {
        status = FAIL(ERR_USAGE,
                      "%s: a pipe cannot take a token file, whose header is written last; give the "
                      "name of a file",
                      path);
        goto out;
    }
    TRY_GOTO(file_out_write(&w->out.file, w->buffer, HEADER_INTS * sizeof(int32_t)), out);
    *out = w;
    return OK;
out:
    token_writer_abandon(w);
    return status;
}

static enum status flush(struct token_writer *w)
{
    size_t n = w->n_buffered;
    w->n_buffered = 0;
    return file_out_write(&w->out.file, w->buffer, n);
}

enum status token_writer_add(struct token_writer *w, const int32_t *ids, size_t n)
{
    size_t width = (size_t)token_dtype_bytes(w->dtype);
    if (n > (size_t)(INT32_MAX - w->n_tokens))
        return FAIL(ERR_DATA, "%s: an llm.c token file holds fewer than 2^31 tokens; write several",
                    w->path);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= w->vocab_size)
            return FAIL(ERR_DATA, "%s: token %d is outside the vocabulary of %" PRId64, w->path,
                        (int)ids[i], w->vocab_size);
        if (w->n_buffered == BUFFER_BYTES)
            TRY(flush(w));
        for (size_t k = 0; k < width; k++)
            w->buffer[w->n_buffered++] = (uint8_t)((uint32_t)ids[i] >> (8 * k));
    }
    w->n_tokens += (int64_t)n;
    return OK;
}

static enum status write_header(struct token_writer *w)
{
    int wide = w->dtype == TOKEN_U32;
    int32_t header[HEADER_INTS] = {wide ? 20240801 : 20240520, wide ? 7 : 1, (int32_t)w->n_tokens};
    if (lseek(w->out.file.fd, 0, SEEK_SET) != 0)
        return FAIL(ERR_IO, "%s: cannot go back to the header", w->path);
    return file_out_write(&w->out.file, header, sizeof(header));
}

enum status token_writer_commit(struct token_writer *w)
{
    enum status status;
    TRY_GOTO(flush(w), out);
    TRY_GOTO(write_header(w), out);
    TRY_GOTO(output_commit(&w->out), out);
out:
    token_writer_abandon(w);
    return status;
}

void token_writer_abandon(struct token_writer *w)
{
    if (!w)
        return;
    output_abandon(&w->out);
    mem_free(w);
}
