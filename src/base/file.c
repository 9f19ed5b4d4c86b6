#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static int64_t fail_countdown; /* 0 = off; tests only, single-threaded */

void file_fail_after(int64_t n)
{
    fail_countdown = n;
}

static int injected_failure(void)
{
    if (fail_countdown == 0 || --fail_countdown > 0)
        return 0;
    errno = ENOSPC;
    return 1;
}

static enum status io_fail(const char *what, const char *path)
{
    if (errno == ENOSPC)
        return FAIL(ERR_IO, "%s: %s: the disk is full; free space or choose another output_dir",
                    path, what);
    return FAIL(ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

enum status file_map_open(struct file_map *m, const char *path)
{
    *m = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return io_fail("cannot open", path);
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return FAIL(ERR_IO, "%s: not a regular file", path);
    }
    m->n_bytes = (size_t)st.st_size;
    if (m->n_bytes > 0) {
        void *p = mmap(NULL, m->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            (void)close(fd);
            return io_fail("cannot map", path);
        }
        m->data = (const uint8_t *)p;
    }
    (void)close(fd);
    return OK;
}

void file_map_close(struct file_map *m)
{
    if (m->data)
        (void)munmap((void *)(uintptr_t)m->data, m->n_bytes);
    *m = (struct file_map){0};
}

enum status file_read(const char *path, char **text, size_t *n_bytes)
{
    *text = NULL;
    struct file_map m;
    TRY(file_map_open(&m, path));
    char *copy = mem_alloc(m.n_bytes + 1);
    if (copy) {
        if (m.n_bytes)
            memcpy(copy, m.data, m.n_bytes);
        copy[m.n_bytes] = '\0';
    }
    if (n_bytes)
        *n_bytes = m.n_bytes;
    file_map_close(&m);
    if (!copy)
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    *text = copy;
    return OK;
}

static enum status out_open(struct file_out *f, const char *path, int flags)
{
    *f = (struct file_out){.fd = -1, .path = path};
    f->fd = injected_failure() ? -1 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    if (f->fd < 0)
        return io_fail("cannot create", path);
    return OK;
}

enum status file_out_open(struct file_out *f, const char *path)
{
    return out_open(f, path, O_TRUNC);
}

enum status file_out_append(struct file_out *f, const char *path)
{
    return out_open(f, path, O_APPEND);
}

enum status file_out_write(struct file_out *f, const void *data, size_t n_bytes)
{
    const char *at = data;
    while (n_bytes > 0) {
        ssize_t n = injected_failure() ? -1 : write(f->fd, at, MIN(n_bytes, (size_t)1 << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_fail("cannot write", f->path);
        at += n;
        n_bytes -= (size_t)n;
        f->n_bytes += n;
    }
    return OK;
}

enum status file_out_sync(struct file_out *f)
{
    if (injected_failure() || fsync(f->fd) != 0)
        return io_fail("cannot sync", f->path);
    return OK;
}

enum status file_out_close(struct file_out *f)
{
    int fd = f->fd;
    f->fd = -1;
    if (fd >= 0 && close(fd) != 0)
        return io_fail("cannot close", f->path);
    return OK;
}

enum status file_write_atomic(const char *path, const void *data, size_t n_bytes)
{
    char temporary[4096];
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= sizeof(temporary))
        return FAIL(ERR_IO, "%s: path too long", path);
    struct file_out f;
    enum status status = file_out_open(&f, temporary);
    if (status != OK)
        return status;
    TRY_GOTO(file_out_write(&f, data, n_bytes), out);
    TRY_GOTO(file_out_sync(&f), out);
    TRY_GOTO(file_out_close(&f), out);
    TRY_GOTO(file_rename(temporary, path), out);
out:
    if (status != OK) {
        (void)!file_out_close(&f);
        (void)unlink(temporary);
    }
    return status;
}

enum status file_rename(const char *from, const char *to)
{
    if (injected_failure() || rename(from, to) != 0)
        return io_fail("cannot rename into place", to);
    return OK;
}

enum status file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_fail("cannot open folder", path);
    int rc = injected_failure() ? -1 : fsync(fd);
    int saved = errno;
    (void)close(fd);
    errno = saved;
    if (rc != 0)
        return io_fail("cannot sync folder", path);
    return OK;
}

enum status file_make_folders(const char *path)
{
    char part[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(part))
        return FAIL(ERR_IO, "'%s': not a usable folder name", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return io_fail("cannot create folder", part);
    }
    if (!file_is_folder(path))
        return FAIL(ERR_IO, "%s: exists and is not a folder", path);
    return OK;
}

enum status file_remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? OK : io_fail("cannot look at", path);
    if (!S_ISDIR(st.st_mode))
        return unlink(path) == 0 ? OK : io_fail("cannot remove", path);
    DIR *d = opendir(path);
    if (!d)
        return io_fail("cannot open folder", path);
    enum status status = OK;
    for (struct dirent *e = readdir(d); e && status == OK; e = readdir(d)) {
        char child[4096];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(child, sizeof(child), "%s/%s", path, e->d_name) >= sizeof(child))
            status = FAIL(ERR_IO, "%s/%s: path too long", path, e->d_name);
        else
            status = file_remove_tree(child);
    }
    (void)closedir(d);
    if (status == OK && rmdir(path) != 0)
        status = io_fail("cannot remove folder", path);
    return status;
}

int file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
