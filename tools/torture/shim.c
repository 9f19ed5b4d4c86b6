/* shim.c: preloaded into snug (LD_PRELOAD), makes calls of the system fail. By environment:
 *
 *   SHIM_CALL    which: open, write, read, fsync, rename, mkdir, unlink, mmap, close, malloc
 *   SHIM_NTH     the n-th such call fails, from 1; 0: none does
 *   SHIM_STICKY  1: and all after it, as on a disk that stays full
 *   SHIM_ERROR   ENOSPC, EIO, EINTR, EACCES, or `short`: half of a write or read
 *   SHIM_UNDER   only files under this folder count (paths as they are given)
 *   SHIM_PLAIN   1: there is no io_uring, so that its reads and writes are calls that can fail
 *   SHIM_COUNT   file that receives the number of such calls at the end
 *
 * Allocations count when the program or a library that reports failure makes them (libraries of
 * threads and of matrix products end the process without memory: that is theirs).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096 };

static const char *call, *under, *count_path;
static long nth;
static int sticky, error, is_short;
static atomic_long n_calls;

/* ---- settings ---- */

struct range {
    uintptr_t first, last;
};
static struct range allocators[64];
static int n_allocators;

static int add_object(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const counted[] = {"libjansson", "libyaml", "libpcre2", "libutf8proc"};
    int counts = info->dlpi_name[0] == '\0'; /* the program itself */
    (void)size;
    (void)user;
    for (size_t i = 0; i < sizeof(counted) / sizeof(*counted); i++)
        counts |= strstr(info->dlpi_name, counted[i]) != NULL;
    for (int i = 0; counts && i < info->dlpi_phnum && n_allocators < 64; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X))
            allocators[n_allocators++] = (struct range){info->dlpi_addr + p->p_vaddr,
                                                        info->dlpi_addr + p->p_vaddr + p->p_memsz};
    }
    return 0;
}

static int error_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EINTR", EINTR}, {"EACCES", EACCES}};
    for (size_t i = 0; name && i < sizeof(errors) / sizeof(*errors); i++)
        if (strcmp(name, errors[i].name) == 0)
            return errors[i].number;
    return EIO;
}

__attribute__((constructor)) static void begin(void)
{
    const char *n = getenv("SHIM_NTH"), *e = getenv("SHIM_ERROR");
    call = getenv("SHIM_CALL");
    under = getenv("SHIM_UNDER");
    count_path = getenv("SHIM_COUNT");
    nth = n ? atol(n) : 0;
    sticky = getenv("SHIM_STICKY") != NULL;
    error = error_of(e);
    is_short = e && strcmp(e, "short") == 0;
    (void)dl_iterate_phdr(add_object, NULL);
    atomic_store(&n_calls, 0);
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    if (!count_path)
        return;
    call = NULL;
    FILE *f = fopen(count_path, "w");
    snprintf(text, sizeof(text), "%ld\n", atomic_load(&n_calls));
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

/* ---- what fails ---- */

static int is_under(const char *path)
{
    return !under || strncmp(path, under, strlen(under)) == 0;
}

static int fd_is_under(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return 0;
    path[n] = '\0';
    return is_under(path);
}

static int fails(const char *name, int counts)
{
    if (!call || strcmp(call, name) != 0 || !counts)
        return 0;
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    if (nth == 0 || n < nth || (n > nth && !sticky))
        return 0;
    errno = error;
    return 1;
}

#define REAL(type, name, ...)         \
    static type (*real)(__VA_ARGS__); \
    if (!real)                        \
    *(void **)(&real) = dlsym(RTLD_NEXT, name)

/* ---- files ---- */

int open(const char *path, int flags, ...)
{
    REAL(int, "open", const char *, int, ...);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open", is_under(path)) ? -1 : real(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t n)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!fails("write", n > 0 && fd_is_under(fd)))
        return real(fd, data, n);
    return is_short && n > 1 ? real(fd, data, n / 2) : is_short ? real(fd, data, n) : -1;
}

ssize_t read(int fd, void *data, size_t n)
{
    REAL(ssize_t, "read", int, void *, size_t);
    if (!fails("read", n > 0 && fd_is_under(fd)))
        return real(fd, data, n);
    return is_short ? real(fd, data, n / 2 + 1) : -1;
}

/* Of what is read or written past the page cache, whole blocks. */
static size_t half(size_t n)
{
    return n >= 2 * BLOCK ? n / 2 / BLOCK * BLOCK : n / 2 + 1;
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    REAL(ssize_t, "pread", int, void *, size_t, off_t);
    if (!fails("read", n > 0 && fd_is_under(fd)))
        return real(fd, data, n, at);
    return is_short ? real(fd, data, half(n), at) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (!fails("write", n > 0 && fd_is_under(fd)))
        return real(fd, data, n, at);
    return is_short ? real(fd, data, half(n), at) : -1;
}

int io_uring_queue_init(unsigned n_entries, void *ring, unsigned flags)
{
    REAL(int, "io_uring_queue_init", unsigned, void *, unsigned);
    return getenv("SHIM_PLAIN") || !real ? -ENOSYS : real(n_entries, ring, flags);
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return fails("fsync", fd_is_under(fd)) ? -1 : real(fd);
}

int close(int fd)
{
    REAL(int, "close", int);
    int counts = call && strcmp(call, "close") == 0 && fd_is_under(fd);
    int rc = real(fd); /* the number is free, whatever close says */
    return fails("close", counts) ? -1 : rc;
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    return fails("rename", is_under(to)) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    return fails("mkdir", is_under(path)) ? -1 : real(path, mode);
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    return fails("unlink", is_under(path)) ? -1 : real(path);
}

int rmdir(const char *path)
{
    REAL(int, "rmdir", const char *);
    return fails("unlink", is_under(path)) ? -1 : real(path);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    REAL(void *, "mmap", void *, size_t, int, int, int, off_t);
    return fails("mmap", fd >= 0 && fd_is_under(fd)) ? MAP_FAILED
                                                     : real(at, n, protection, flags, fd, offset);
}

/* ---- memory ---- */

static int counts_from(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    for (int i = 0; i < n_allocators; i++)
        if (at >= allocators[i].first && at < allocators[i].last)
            return 1;
    return 0;
}

static int memory_fails(const void *caller)
{
    if (!call || !fails("malloc", counts_from(caller)))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return n > 0 && memory_fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, n);
}

char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = memory_fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}
