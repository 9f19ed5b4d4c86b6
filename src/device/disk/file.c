/* file.c: allocations of the disk tier as files, and the disk itself. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "device/disk/disk_internal.h"

/* ---- the disk -------------------------------------------------------------------------------- */

static bool without_uring;

void disk_use_threads(bool on)
{
    without_uring = on;
}

enum status disk_open(struct disk **out, const char *folder)
{
    struct disk *d = mem_calloc(1, sizeof(*d));
    enum status status;
    *out = NULL;
    if (!d)
        return FAIL(ERR_MEMORY, "out of memory for the disk tier");
    (void)pthread_mutex_init(&d->port_lock, NULL);
    d->folder = mem_strdup(folder);
    TRY_GOTO(d->folder ? OK : FAIL(ERR_MEMORY, "out of memory for the disk tier"), out);
    TRY_GOTO(folder_prepare(folder), out);
    TRY_GOTO(port_open(&d->port, !without_uring), out);
    d->is_memory = folder_is_memory(folder);
    *out = d;
    return OK;
out:
    disk_close(d);
    return status;
}

void disk_close(struct disk *d)
{
    if (!d)
        return;
    queue_close(d);
    while (d->files.n > 0)
        disk_free(d, d->files.items[0]->base);
    vec_release(&d->files);
    for (size_t i = 0; i < d->tasks.n; i++)
        mem_free(d->tasks.items[i]);
    vec_release(&d->tasks);
    port_close(&d->port);
    (void)pthread_mutex_destroy(&d->port_lock);
    mem_free(d->folder);
    mem_free(d);
}

const char *disk_folder(const struct disk *d)
{
    return d->folder;
}

const char *disk_method(const struct disk *d)
{
    return d->port.io ? "io_uring" : "threads";
}

bool disk_is_direct(const struct disk *d)
{
    return d->direct;
}

bool disk_is_memory(const struct disk *d)
{
    return d->is_memory;
}

/* ---- allocations ----------------------------------------------------------------------------- */

static void file_close(struct disk_file *f)
{
    if (f->base)
        (void)munmap(f->base, (size_t)f->n_bytes);
    if (f->fd >= 0)
        (void)close(f->fd);
    mem_free(f->name);
    mem_free(f);
}

static enum status refuse(const struct disk *d, int64_t n_bytes, int error)
{
    char wanted[BYTES_TEXT], had[BYTES_TEXT];
    struct device_room room;
    disk_room(d, &room);
    return FAIL(ERR_FIT,
                "offload_folder: '%s' has no room for %s (%lld bytes): %s; its file system has %s "
                "free: free some of it, name a folder with more, or lower disk_memory",
                d->folder, format_bytes(wanted, n_bytes), (long long)n_bytes, strerror(error),
                format_bytes(had, room.free_bytes));
}

/* Blocks for all of it now: a disk that is full is found out before the first step. */
static enum status give_blocks(const struct disk *d, const struct disk_file *f)
{
    int error = posix_fallocate(f->fd, 0, f->n_bytes);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return refuse(d, f->n_bytes, error);
    if (error != 0) {
        errno = error;
        return file_fail("give blocks to", f->name);
    }
    return OK;
}

enum status disk_alloc(struct disk *d, int64_t n_bytes, void **base)
{
    struct disk_file *f = mem_calloc(1, sizeof(*f));
    enum status status;
    *base = NULL;
    if (!f)
        return FAIL(ERR_MEMORY, "out of memory for a file of the disk tier");
    f->fd = -1;
    f->n_bytes = align_up(n_bytes, DISK_BLOCK);
    TRY_GOTO(folder_new_file(d->folder, &f->fd, &f->direct, &f->name), out);
    TRY_GOTO(give_blocks(d, f), out);
    void *p = mmap(NULL, (size_t)f->n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        status = FAIL(ERR_MEMORY, "no addresses for %lld bytes of the disk tier: %s",
                      (long long)f->n_bytes, strerror(errno));
        goto out;
    }
    f->base = p;
    TRY_GOTO(vec_push(&d->files, f), out);
    d->direct = f->direct;
    *base = f->base;
    return OK;
out:
    file_close(f);
    return status;
}

static struct disk_file *find_file(const struct disk *d, const void *base)
{
    for (size_t i = 0; i < d->files.n; i++) {
        if (d->files.items[i]->base == base)
            return d->files.items[i];
    }
    return NULL;
}

void disk_free(struct disk *d, void *base)
{
    for (size_t i = 0; i < d->files.n; i++) {
        if (d->files.items[i]->base != base)
            continue;
        file_close(d->files.items[i]);
        d->files.items[i] = d->files.items[--d->files.n];
        return;
    }
}

int64_t disk_file_bytes(struct disk *d, const void *base)
{
    const struct disk_file *f = find_file(d, base);
    struct stat s;
    return f && fstat(f->fd, &s) == 0 ? (int64_t)s.st_size : -1;
}

/* ---- copies ---------------------------------------------------------------------------------- */

enum status disk_find_range(const struct disk *d, struct place to, struct place from,
                            int64_t n_bytes, struct file_range *out)
{
    bool write = to.memory->tier == TIER_DISK;
    struct place on_disk = write ? to : from, other = write ? from : to;
    const struct disk_file *f = find_file(d, on_disk.memory->base);
    if (!f || other.memory->tier == TIER_DISK || on_disk.memory->tier != TIER_DISK)
        return FAIL(ERR_INTERNAL, "a copy between %s and %s is none of the disk's",
                    tier_name(from.memory->tier), tier_name(to.memory->tier));
    *out = (struct file_range){.file = f,
                               .at = on_disk.offset,
                               .n_bytes = n_bytes,
                               .data = place_address(other),
                               .write = write};
    return OK;
}

enum status disk_copy(struct disk *d, struct place to, struct place from, int64_t n_bytes)
{
    struct file_range r;
    TRY(disk_find_range(d, to, from, n_bytes, &r));
    (void)pthread_mutex_lock(&d->port_lock);
    enum status status = transfer(&d->port, &r);
    (void)pthread_mutex_unlock(&d->port_lock);
    return status;
}
