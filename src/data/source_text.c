/* source_text.c: a plain text file, which is one document, into token ids. */
#include "base/alloc.h"
#include "base/file.h"
#include "data/document.h"
#include "data/source_internal.h"

enum { PIECE_BYTES = 65536 };

static enum status read_pieces(struct document *d, const struct file_in *f, char *piece)
{
    for (int64_t at = 0; at < f->n_bytes; at += PIECE_BYTES) {
        size_t n = (size_t)MIN(f->n_bytes - at, (int64_t)PIECE_BYTES);
        if (file_in_read(f, at, piece, n) != OK)
            return ERR_DATA; /* data that cannot be read is bad data */
        enum status status = document_add(d, piece, n);
        if (status != OK)
            return status_prefix(status, "%s", f->path);
    }
    enum status status = document_end(d);
    return status == OK ? OK : status_prefix(status, "%s", f->path);
}

enum status source_read_text(const struct source_options *options, const char *path,
                             struct token_writer *w)
{
    struct file_in f = {.fd = -1};
    struct document d;
    char *piece = NULL;
    enum status status;
    document_init(&d, options->tokenizer, w, options->spare_bytes);
    TRY_GOTO(source_open_file(&f, path), out);
    if (f.n_bytes == 0) {
        status = FAIL(ERR_DATA, "%s: the text file is empty", path);
        goto out;
    }
    TRY_GOTO(mem_try_array(&piece, PIECE_BYTES, 1), out);
    TRY_GOTO(read_pieces(&d, &f, piece), out);
out:
    mem_free(piece);
    document_release(&d);
    file_in_close(&f);
    return status;
}
