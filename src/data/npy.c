#include "data/npy.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/file.h"

enum { MOST_HEADER = 4096, PREAMBLE = 12 };

/* The text after 'key': in the header; NULL: there is none. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    while (at && (*at == ':' || *at == ' '))
        at++;
    return at;
}

static enum status parse_type(const char *path, const char *header, struct npy_header *out)
{
    const char *at = value_of(header, "'descr'");
    if (!at || *at != '\'')
        return FAIL(ERR_DATA, "%s: its elements are not plain numbers", path);
    at++;
    if (*at == '>')
        return FAIL(ERR_DATA, "%s: its numbers are big-endian; save them with .astype('<f4')",
                    path);
    at += *at == '<' || *at == '|' || *at == '=';
    out->kind = *at;
    out->item_bytes = atoi(at + 1);
    bool is_size = out->item_bytes == 1 || out->item_bytes == 2 || out->item_bytes == 4 ||
                   out->item_bytes == 8;
    if (!strchr("fiub", out->kind) || !is_size || (out->kind == 'f' && out->item_bytes == 1))
        return FAIL(ERR_DATA, "%s: elements of type '%.8s' are not read; save them as float32",
                    path, at);
    return OK;
}

static enum status parse_shape(const char *path, const char *header, struct npy_header *out)
{
    const char *at = value_of(header, "'shape'");
    if (!at || *at != '(')
        return FAIL(ERR_DATA, "%s: its header has no shape", path);
    for (at++; *at && *at != ')';) {
        char *end;
        long long n = strtoll(at, &end, 10);
        if (end == at || n < 0 || out->rank == NPY_MOST_AXES)
            return FAIL(ERR_DATA, "%s: its shape cannot be read", path);
        out->dims[out->rank++] = n;
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    return OK;
}

static enum status check_length(const struct file_in *f, const struct npy_header *h)
{
    int64_t n = h->item_bytes;
    for (int i = 0; i < h->rank; i++) {
        if (h->dims[i] > 0 && n > INT64_MAX / h->dims[i])
            return FAIL(ERR_DATA, "%s: its shape is larger than any file", f->path);
        n *= h->dims[i];
    }
    if (f->n_bytes - h->offset < n)
        return FAIL(ERR_DATA,
                    "%s: is cut short: its shape needs %" PRId64 " bytes, %" PRId64 " are there",
                    f->path, n, f->n_bytes - h->offset);
    return OK;
}

static enum status parse(const struct file_in *f, struct npy_header *out)
{
    unsigned char start[PREAMBLE];
    char header[MOST_HEADER + 1];
    if (f->n_bytes < PREAMBLE)
        return FAIL(ERR_DATA, "%s: is no .npy file: it has %" PRId64 " bytes", f->path, f->n_bytes);
    TRY(file_in_read(f, 0, start, sizeof(start)));
    if (memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
        return FAIL(ERR_DATA, "%s: is no .npy file: it does not begin as one", f->path);
    bool wide = start[6] > 1;
    int64_t length = start[8] | start[9] << 8, begin = wide ? PREAMBLE : 10;
    if (wide)
        length |= (int64_t)start[10] << 16 | (int64_t)start[11] << 24;
    if (length > MOST_HEADER || begin + length > f->n_bytes)
        return FAIL(ERR_DATA, "%s: its header of %" PRId64 " bytes cannot be read", f->path,
                    length);
    TRY(file_in_read(f, begin, header, (size_t)length));
    header[length] = '\0';
    out->offset = begin + length;
    TRY(parse_type(f->path, header, out));
    TRY(parse_shape(f->path, header, out));
    const char *order = value_of(header, "'fortran_order'");
    if (!order || strncmp(order, "False", 5) != 0)
        return FAIL(ERR_DATA, "%s: is in Fortran's order; save numpy.ascontiguousarray(x)",
                    f->path);
    return check_length(f, out);
}

enum status npy_read_header(const char *path, struct npy_header *out)
{
    struct file_in f;
    *out = (struct npy_header){0};
    TRY(file_in_open(&f, path));
    enum status status = parse(&f, out);
    file_in_close(&f);
    return status;
}
