/* file_hash.c: see file_hash.h. */
#include "io/file_hash.h"

#define XXH_STATIC_LINKING_ONLY /* the state as a local: the library would take it from malloc */
#include <xxhash.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

static enum status read_fail(const char *path)
{
    return file_fail("cannot read", path);
}

/* *n_read = bytes read at the offset, 0 at the end of the file. */
static enum status read_some(int fd, const char *path, int64_t offset, void *dst, size_t n_bytes,
                             size_t *n_read)
{
    ssize_t n;
    do
        n = pread(fd, dst, MIN(n_bytes, (size_t)1 << 30), offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return read_fail(path);
    *n_read = (size_t)n;
    return OK;
}

static enum status hash_open_file(int fd, const char *path, uint64_t *hash, int64_t *n_bytes)
{
    uint8_t *buffer;
    TRY(mem_try_array(&buffer, FILE_HASH_BYTES, 1));
    XXH64_state_t state;
    (void)XXH64_reset(&state, 0);
    enum status status = OK;
    size_t n = 1;
    for (*n_bytes = 0; status == OK && n > 0; *n_bytes += (int64_t)n) {
        n = 0;
        status = read_some(fd, path, *n_bytes, buffer, FILE_HASH_BYTES, &n);
        (void)XXH64_update(&state, buffer, n);
    }
    *hash = XXH64_digest(&state);
    mem_free(buffer);
    return status;
}

enum status file_hash(const char *path, uint64_t *hash, int64_t *n_bytes)
{
    *hash = 0;
    *n_bytes = 0;
    int fd;
    TRY(file_open_regular(path, &fd, n_bytes));
    enum status status = hash_open_file(fd, path, hash, n_bytes);
    (void)close(fd);
    return status;
}

uint64_t file_hash_bytes(const void *data, size_t n_bytes)
{
    return XXH64(data, n_bytes, 0);
}

const char *file_hash_text(char out[HASH_TEXT], uint64_t hash)
{
    (void)snprintf(out, HASH_TEXT, "%016llx", (unsigned long long)hash);
    return out;
}

enum status file_size(const char *path, int64_t *n_bytes)
{
    struct stat st;
    *n_bytes = 0;
    if (stat(path, &st) != 0)
        return read_fail(path);
    if (!S_ISREG(st.st_mode))
        return FAIL(ERR_IO, "%s: not a regular file", path);
    *n_bytes = st.st_size;
    return OK;
}

enum status file_read_part(const char *path, int64_t offset, void *dst, size_t n_bytes)
{
    int fd;
    int64_t n_all;
    TRY(file_open_regular(path, &fd, &n_all));
    enum status status = OK;
    for (size_t at = 0, n = 0; at < n_bytes && status == OK; at += n) {
        status = read_some(fd, path, offset + (int64_t)at, (char *)dst + at, n_bytes - at, &n);
        if (status == OK && n == 0)
            status = FAIL(ERR_IO, "%s: ends early, at byte %lld", path,
                          (long long)(offset + (int64_t)at));
        if (status != OK)
            break;
    }
    (void)close(fd);
    return status;
}
