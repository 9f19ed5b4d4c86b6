/* folder.c: the folder of the disk tier.
 *
 * Files here are named snug-offload-PID-N and locked by the process that made them; it removes the
 * name as soon as the file is open. One that is found under such a name without a lock was left by
 * a process that ended in between: it is nobody's. One that is locked, and everything that is
 * called otherwise, stays.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "device/disk/disk_internal.h"

#define PREFIX "snug-offload-"

/* ---- leftovers ------------------------------------------------------------------------------- */

static bool is_ours(const char *name)
{
    int pid, number, end = 0;
    return sscanf(name, PREFIX "%d-%d%n", &pid, &number, &end) == 2 && name[end] == '\0';
}

/* Where the lock can be had nobody uses the file. One that is being made this instant loses its
 * name a moment before its owner takes it away, which is all the same to the owner. */
static void remove_leftover(int folder, const char *name, const char *path)
{
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(folder, name, 0) == 0)
        log_info("%s/%s was left by a process that ended early: removed", path, name);
    (void)close(fd);
}

static enum status sweep(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder)
        return file_fail("open the folder", path);
    for (const struct dirent *e; (e = readdir(folder));) {
        if (is_ours(e->d_name))
            remove_leftover(dirfd(folder), e->d_name, path);
    }
    (void)closedir(folder);
    return OK;
}

enum status folder_prepare(const char *folder)
{
    TRY(file_make_folders(folder));
    if (access(folder, W_OK | X_OK) != 0)
        return FAIL(ERR_IO, "offload_folder: '%s' cannot be written: %s; name a folder of yours",
                    folder, strerror(errno));
    return sweep(folder);
}

/* ---- its file system ------------------------------------------------------------------------- */

bool folder_is_memory(const char *folder)
{
    struct statfs s;
    return statfs(folder, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

void disk_room(const struct disk *d, struct device_room *out)
{
    struct statvfs s;
    *out = (struct device_room){.is_host = true};
    (void)snprintf(out->whose, sizeof(out->whose), "the file system of '%.200s'", d->folder);
    if (statvfs(d->folder, &s) != 0)
        return;
    out->total_bytes = (int64_t)s.f_blocks * (int64_t)s.f_frsize;
    out->free_bytes = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
}

/* ---- new files ------------------------------------------------------------------------------- */

/* Past the page cache where the file system can. */
static int open_new(const char *path, bool *direct)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags | O_DIRECT, 0600);
    *direct = fd >= 0;
    if (fd >= 0 || errno != EINVAL)
        return fd;
    (void)unlink(path); /* some file systems make it all the same */
    return open(path, flags, 0600);
}

enum status folder_new_file(const char *folder, int *fd, bool *direct, char **path)
{
    struct str name = {0};
    *path = NULL;
    *fd = -1;
    for (int i = 0; *fd < 0; i++) {
        str_clear(&name);
        str_addf(&name, "%s/" PREFIX "%ld-%d", folder, (long)getpid(), i);
        if (str_status(&name) != OK) {
            str_release(&name);
            return FAIL(ERR_MEMORY, "out of memory for the name of a file");
        }
        *fd = open_new(str_text(&name), direct);
        if (*fd < 0 && errno != EEXIST) {
            enum status status = file_fail("create", str_text(&name));
            str_release(&name);
            return status;
        }
    }
    (void)flock(*fd, LOCK_EX | LOCK_NB);
    *path = mem_strdup(str_text(&name));
    (void)unlink(str_text(&name));
    str_release(&name);
    if (*path)
        return OK;
    (void)close(*fd);
    return FAIL(ERR_MEMORY, "out of memory for the name of a file");
}
