#include "engine/carrier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/str.h"

static _Atomic int64_t fails_after; /* of carrier_fail_after */

void carrier_fail_after(int64_t n)
{
    fails_after = n;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* It has no name where the file system can do without; else it has one for a moment. */
static int open_unnamed(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd;
    struct str path = {0};
    str_addf(&path, "%s/.snug-carrier-XXXXXX", folder);
    fd = path.failed ? -1 : mkostemp(path.text, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path.text);
    str_release(&path);
    return fd;
}

/* Room that is not there shows here, and not when the bytes come. */
static enum status open_file(struct carrier *c, int64_t n_bytes)
{
    char text[BYTES_TEXT];
    c->fd = open_unnamed(c->folder);
    if (c->fd < 0)
        return FAIL(ERR_IO, "%s: cannot create a file: %s", c->folder, strerror(errno));
    int error = posix_fallocate(c->fd, 0, n_bytes);
    if (error)
        return FAIL(ERR_IO,
                    "%s: no room for the %s that a change of budgets puts there for a moment: %s",
                    c->folder, format_bytes(text, n_bytes), strerror(error));
    return OK;
}

static void take_memory(struct carrier *c, int64_t n_bytes)
{
    void *p = n_bytes > 0 ? mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                          : MAP_FAILED;
    if (p == MAP_FAILED)
        return;
    (void)madvise(p, (size_t)n_bytes, MADV_HUGEPAGE); /* fewer page faults; best effort */
    c->memory = p;
    c->memory_bytes = n_bytes;
}

enum status carrier_open(struct carrier *c, const char *folder, int64_t memory_bytes,
                         int64_t n_bytes, struct team *team)
{
    *c = (struct carrier){.fd = -1, .folder = folder, .n_bytes = n_bytes, .team = team};
    take_memory(c, memory_bytes);
    enum status status = OK;
    if (n_bytes > c->memory_bytes)
        status = open_file(c, n_bytes - c->memory_bytes);
    if (status != OK)
        carrier_close(c);
    return status;
}

void carrier_close(struct carrier *c)
{
    if (c->memory)
        (void)munmap(c->memory, (size_t)c->memory_bytes);
    if (c->folder && c->fd >= 0)
        (void)close(c->fd);
    *c = (struct carrier){.fd = -1};
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Large requests, from several threads at once. */
enum { REQUEST_BYTES = 4 << 20 };
struct transfer {
    int fd;
    bool writes;
    char *data;
    int64_t at, n_bytes;
    _Atomic int *error; /* of the first that failed */
};

static int move(const struct transfer *x, int64_t from, int64_t to)
{
    if (fails_after > 0 && atomic_fetch_sub(&fails_after, 1) == 1)
        return EIO;
    while (from < to) {
        ssize_t n = x->writes
                        ? pwrite(x->fd, x->data + from, (size_t)(to - from), (off_t)(x->at + from))
                        : pread(x->fd, x->data + from, (size_t)(to - from), (off_t)(x->at + from));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        from += n;
    }
    return 0;
}

static void move_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct transfer *x = job;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int error = move(x, i * REQUEST_BYTES, MIN((i + 1) * REQUEST_BYTES, x->n_bytes));
        if (error)
            atomic_store(x->error, error);
    }
}

static enum status transfer(const struct carrier *c, bool writes, int64_t at, void *data,
                            int64_t n_bytes)
{
    _Atomic int error = 0;
    const struct transfer x = {c->fd, writes, data, at, n_bytes, &error};
    team_run(c->team, (n_bytes + REQUEST_BYTES - 1) / REQUEST_BYTES, 1, move_some, &x);
    if (error)
        return FAIL(ERR_IO, "%s: cannot %s the file of a change of budgets: %s", c->folder,
                    writes ? "write" : "read", strerror(error));
    return OK;
}

/* ---- in and out ------------------------------------------------------------------------------ */

/* How many of them lie in memory. */
static int64_t in_memory(const struct carrier *c, int64_t at, int64_t n_bytes)
{
    return MIN(MAX(c->memory_bytes - at, (int64_t)0), n_bytes);
}

enum status carrier_write(const struct carrier *c, int64_t at, const void *from, int64_t n_bytes)
{
    int64_t n = in_memory(c, at, n_bytes);
    if (n > 0)
        team_copy(c->team, c->memory + at, from, n);
    if (n == n_bytes)
        return OK;
    return transfer(c, true, at + n - c->memory_bytes, (char *)(uintptr_t)from + n, n_bytes - n);
}

enum status carrier_read(const struct carrier *c, int64_t at, void *to, int64_t n_bytes)
{
    int64_t n = in_memory(c, at, n_bytes);
    if (n > 0)
        team_copy(c->team, to, c->memory + at, n);
    if (n == n_bytes)
        return OK;
    return transfer(c, false, at + n - c->memory_bytes, (char *)to + n, n_bytes - n);
}
