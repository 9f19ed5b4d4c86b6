#include "engine/carrier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

enum { PART_ALIGNMENT = 1 << 16 }; /* a multiple of every page size in use */

/* Sums of gradients and of metrics begin anew with every step; where a step has one micro-batch
 * there are none. */
static bool is_carried(const struct storage_entry *e)
{
    bool passes =
        e->kind == MEMORY_STAGING || e->kind == MEMORY_GRADIENTS || e->kind == MEMORY_WORKSPACE;
    return !passes && e->n_bytes > 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

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

/* Room that is not there shows here, and not as a signal when the bytes come. */
static enum status open_file(struct carrier *c, int64_t n_bytes)
{
    char text[BYTES_TEXT];
    c->fd = open_unnamed(c->folder);
    if (c->fd < 0)
        return FAIL(ERR_IO, "%s: cannot create a file: %s", c->folder, strerror(errno));
    int error = posix_fallocate(c->fd, 0, MAX(n_bytes, (int64_t)1));
    if (error)
        return FAIL(ERR_IO,
                    "%s: no room for the %s that a change of budgets puts there for a moment: %s",
                    c->folder, format_bytes(text, n_bytes), strerror(error));
    return OK;
}

static enum status map_part(const struct carrier *c, const struct carried *p, void **out)
{
    *out = mmap(NULL, (size_t)p->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, (off_t)p->at);
    if (*out == MAP_FAILED)
        return FAIL(ERR_MEMORY, "%s: cannot map %lld bytes: %s", p->name, (long long)p->n_bytes,
                    strerror(errno));
    return OK;
}

/* ---- in and out ------------------------------------------------------------------------------ */

/* A part is mapped while it is copied, so that no more than the largest counts as the process's. */
static enum status load_part(const struct carrier *c, const struct carried *p, struct executor *x,
                             const struct storage_entry *e)
{
    void *to;
    TRY(map_part(c, p, &to));
    enum status status = executor_read_storage(x, e, to);
    (void)munmap(to, (size_t)p->n_bytes);
    return status;
}

static enum status unload_part(const struct carrier *c, const struct carried *p, struct executor *x,
                               const struct storage_entry *e)
{
    void *from;
    TRY(map_part(c, p, &from));
    enum status status = executor_write_storage(x, e, from);
    (void)munmap(from, (size_t)p->n_bytes);
    return status;
}

static enum status list_parts(struct carrier *c, const struct storage *storage, int64_t *n_bytes)
{
    *n_bytes = 0;
    for (size_t i = 0; i < storage->entries.n; i++) {
        const struct storage_entry *e = &storage->entries.items[i];
        struct carried part = {.n_bytes = e->n_bytes, .at = *n_bytes};
        if (!is_carried(e))
            continue;
        part.name = pool_strdup(&c->pool, e->name);
        if (!part.name)
            return FAIL(ERR_MEMORY, "out of memory for a change of budgets");
        TRY(vec_push(&c->parts, part));
        *n_bytes += (e->n_bytes + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
    }
    return OK;
}

enum status carrier_load(struct carrier *c, const char *folder, struct executor *x,
                         const struct storage *storage)
{
    int64_t n_bytes;
    enum status status;
    *c = (struct carrier){.fd = -1, .folder = folder};
    pool_init(&c->pool);
    TRY_GOTO(list_parts(c, storage, &n_bytes), out);
    TRY_GOTO(open_file(c, n_bytes), out);
    for (size_t i = 0; i < c->parts.n; i++)
        TRY_GOTO(load_part(c, &c->parts.items[i], x, storage_find(storage, c->parts.items[i].name)),
                 out);
out:
    if (status != OK)
        carrier_close(c);
    return status;
}

enum status carrier_unload(const struct carrier *c, struct executor *x,
                           const struct storage *storage)
{
    for (size_t i = 0; i < c->parts.n; i++) {
        const struct carried *p = &c->parts.items[i];
        const struct storage_entry *e = storage_find(storage, p->name);
        if (!e || e->n_bytes != p->n_bytes)
            return FAIL(ERR_INTERNAL, "'%s' is not what it was under the other budgets", p->name);
        TRY(unload_part(c, p, x, e));
    }
    return OK;
}

void carrier_close(struct carrier *c)
{
    if (c->fd >= 0)
        (void)close(c->fd);
    vec_release(&c->parts);
    pool_release(&c->pool);
    *c = (struct carrier){.fd = -1};
}
