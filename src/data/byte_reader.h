/* byte_reader.h: a file byte by byte, from any place of it on. */
#ifndef SNUG_DATA_BYTE_READER_H
#define SNUG_DATA_BYTE_READER_H

#include "base/compiler.h"
#include "base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { READER_BYTES = 32768 };

/* Zero-initialised but for the file. */
struct byte_reader {
    const struct file_in *file;
    int64_t start;      /* of the buffer in the file */
    size_t n, i;        /* bytes in it; the next one */
    enum status status; /* of reading; bytes end with the first failure */
    uint8_t buffer[READER_BYTES];
};

static inline int64_t reader_at(const struct byte_reader *r)
{
    return r->start + (int64_t)r->i;
}

static inline void reader_seek(struct byte_reader *r, int64_t at)
{
    if (at >= r->start && at <= r->start + (int64_t)r->n) {
        r->i = (size_t)(at - r->start);
        return;
    }
    r->start = at;
    r->n = r->i = 0;
}

/* Reads on when the buffer is used up; false at the end. */
static inline int reader_fill(struct byte_reader *r)
{
    if (r->i < r->n)
        return 1;
    r->start += (int64_t)r->n;
    r->n = r->i = 0;
    size_t n = (size_t)MIN(r->file->n_bytes - r->start, (int64_t)READER_BYTES);
    if (r->status != OK || r->start >= r->file->n_bytes)
        return 0;
    if (file_in_read(r->file, r->start, r->buffer, n) != OK)
        r->status = ERR_DATA; /* data that cannot be read is bad data */
    r->n = r->status == OK ? n : 0;
    return r->n > 0;
}

/* The next byte, or -1 at the end. */
static inline int reader_peek(struct byte_reader *r)
{
    return reader_fill(r) ? r->buffer[r->i] : -1;
}

static inline int reader_next(struct byte_reader *r)
{
    return reader_fill(r) ? r->buffer[r->i++] : -1;
}

#ifdef __cplusplus
}
#endif
#endif
