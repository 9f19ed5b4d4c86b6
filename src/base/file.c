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
#include "base/str.h"

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

enum status file_fail(const char *what, const char *path)
{
    if (errno == ENOSPC)
        return FAIL(ERR_IO, "%s: %s: the disk is full; free space, or write elsewhere", path, what);
    /* These say nothing about the file. */
    if (errno == ENOMEM)
        return FAIL(ERR_MEMORY, "%s: %s: out of memory", path, what);
    if (errno == EMFILE || errno == ENFILE)
        return FAIL(ERR_FAILED, "%s: %s: %s", path, what, strerror(errno));
    return FAIL(ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

enum status file_open_regular(const char *path, int *fd, int64_t *n_bytes)
{
    struct stat st;
    *n_bytes = 0;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (*fd < 0)
        return file_fail("cannot open", path);
    int looked = fstat(*fd, &st);
    if (looked == 0 && S_ISREG(st.st_mode)) {
        *n_bytes = st.st_size;
        return OK;
    }
    enum status status = looked != 0 ? file_fail("cannot look at", path)
                                     : FAIL(ERR_IO, "%s: %s, where a regular file is needed", path,
                                            kind_of(st.st_mode));
    (void)close(*fd);
    *fd = -1;
    return status;
}

enum status file_in_open(struct file_in *f, const char *path)
{
    *f = (struct file_in){.fd = -1, .path = path};
    return file_open_regular(path, &f->fd, &f->n_bytes);
}

enum status file_in_read(const struct file_in *f, int64_t at, void *out, size_t n)
{
    char *to = out;
    while (n > 0) {
        ssize_t got = pread(f->fd, to, n, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_fail("cannot read", f->path);
        if (got == 0)
            return FAIL(ERR_IO, "%s: shorter than it was when it was opened", f->path);
        to += got;
        at += got;
        n -= (size_t)got;
    }
    return OK;
}

void file_in_close(struct file_in *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}

enum status file_map_open(struct file_map *m, const char *path)
{
    struct file_in f;
    enum status status = OK;
    *m = (struct file_map){0};
    TRY(file_in_open(&f, path));
    m->n_bytes = (size_t)f.n_bytes;
    if (m->n_bytes > 0) {
        void *p = mmap(NULL, m->n_bytes, PROT_READ, MAP_PRIVATE, f.fd, 0);
        if (p == MAP_FAILED)
            status = file_fail("cannot map", path);
        else
            m->data = (const uint8_t *)p;
    }
    file_in_close(&f);
    return status;
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

/* Reads to the end or past `most`. */
static enum status read_to_end(int fd, const char *path, size_t most, struct str *out)
{
    char buffer[4096];
    while (out->n <= most) {
        ssize_t n = read(fd, buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail("cannot read", path);
        if (n == 0)
            break;
        str_add_n(out, buffer, (size_t)n);
    }
    if (out->n > most)
        return FAIL(ERR_IO, "%s: longer than %zu bytes", path, most);
    str_add_n(out, "", 0);
    return str_status(out);
}

enum status file_read_stream(const char *path, size_t most, char **text, size_t *n_bytes)
{
    struct str all = {0};
    *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return file_fail("cannot open", path);
    enum status status = read_to_end(fd, path, most, &all);
    (void)close(fd);
    *n_bytes = all.n;
    if (status == OK)
        *text = str_take(&all);
    str_release(&all);
    return status;
}

/* Opens `where`; `path` is what messages call it. */
static enum status out_open(struct file_out *f, const char *where, const char *path, int flags)
{
    *f = (struct file_out){.fd = -1, .path = path};
    f->fd = injected_failure() ? -1 : open(where, O_WRONLY | O_CLOEXEC | flags, 0644);
    if (f->fd < 0)
        return file_fail("cannot open for writing", path);
    return OK;
}

enum status file_out_open(struct file_out *f, const char *path)
{
    return out_open(f, path, path, O_CREAT | O_TRUNC);
}

enum status file_out_open_for(struct file_out *f, const char *temporary, const char *path)
{
    return out_open(f, temporary, path, O_CREAT | O_TRUNC);
}

enum status file_out_append(struct file_out *f, const char *path)
{
    return out_open(f, path, path, O_CREAT | O_APPEND);
}

enum status file_out_open_existing(struct file_out *f, const char *path)
{
    return out_open(f, path, path, 0);
}

enum status file_out_write(struct file_out *f, const void *data, size_t n_bytes)
{
    const char *at = data;
    while (n_bytes > 0) {
        ssize_t n = injected_failure() ? -1 : write(f->fd, at, MIN(n_bytes, (size_t)1 << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_fail("cannot write", f->path);
        at += n;
        n_bytes -= (size_t)n;
        f->n_bytes += n;
    }
    return OK;
}

enum status file_out_sync(struct file_out *f)
{
    if (injected_failure() || fsync(f->fd) != 0)
        return file_fail("cannot sync", f->path);
    return OK;
}

enum status file_out_close(struct file_out *f)
{
    int fd = f->fd;
    f->fd = -1;
    if (fd >= 0 && close(fd) != 0)
        return file_fail("cannot close", f->path);
    return OK;
}

enum status file_rename(const char *from, const char *to)
{
    if (injected_failure() || rename(from, to) != 0)
        return file_fail("cannot rename into place", to);
    return OK;
}

enum status file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return file_fail("cannot open folder", path);
    int rc = injected_failure() ? -1 : fsync(fd);
    int saved = errno;
    (void)close(fd);
    errno = saved;
    if (rc != 0)
        return file_fail("cannot sync folder", path);
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
            return file_fail("cannot create folder", part);
    }
    if (!file_is_folder(path))
        return FAIL(ERR_IO, "%s: exists and is not a folder", path);
    return OK;
}

enum status file_remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? OK : file_fail("cannot look at", path);
    if (!S_ISDIR(st.st_mode))
        return unlink(path) == 0 ? OK : file_fail("cannot remove", path);
    DIR *d = opendir(path);
    if (!d)
        return file_fail("cannot open folder", path);
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
        status = file_fail("cannot remove folder", path);
    return status;
}

int file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int file_is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int file_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
