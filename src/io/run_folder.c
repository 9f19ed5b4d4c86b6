#include "io/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "io/checkpoint.h"

#define LOCK_NAME ".snug-run"

/* ---- ids ---- */

enum { TIME_DIGITS = 22 }; /* with the dashes */

/* The next larger number, dashes left out. */
static void advance(char time[TIME_DIGITS + 1])
{
    for (int i = TIME_DIGITS; i-- > 0;) {
        if (time[i] == '-')
            continue;
        if (time[i]++ != '9')
            return;
        time[i] = '0';
    }
}

enum status run_id_make(char out[RUN_ID_TEXT], const char *after)
{
    struct timespec now;
    struct tm t;
    unsigned bits;
    char second[16], time[TIME_DIGITS + 1];
    if (getrandom(&bits, sizeof(bits), 0) != (ssize_t)sizeof(bits) ||
        clock_gettime(CLOCK_REALTIME, &now) != 0 || !gmtime_r(&now.tv_sec, &t) ||
        strftime(second, sizeof(second), "%Y%m%d-%H%M%S", &t) == 0)
        return FAIL(ERR_FAILED, "no id for this run: neither the time nor a random number is "
                                "to be had");
    (void)snprintf(time, sizeof(time), "%s-%06u", second, (unsigned)(now.tv_nsec / 1000) % 1000000);
    if (run_id_is_valid(after) && strncmp(time, after, TIME_DIGITS) <= 0) {
        memcpy(time, after, TIME_DIGITS);
        advance(time);
    }
    (void)snprintf(out, RUN_ID_TEXT, "%s-%08x", time, bits);
    return OK;
}

bool run_id_is_valid(const char *id)
{
    return id && strlen(id) == RUN_ID_TEXT - 1 && strspn(id, "0123456789abcdef-") == strlen(id);
}

/* ---- the lock ---- */

/* What the file says; a line that is not there leaves its part as it is. */
static void read_note(int fd, char owner[RUN_ID_TEXT], long *pid)
{
    char text[128] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    const char *run = n > 0 ? strstr(text, "run ") : NULL,
               *by = n > 0 ? strstr(text, "pid ") : NULL;
    char id[RUN_ID_TEXT];
    if (by)
        *pid = strtol(by + 4, NULL, 10);
    if (run && snprintf(id, sizeof(id), "%s", run + 4) > 0 && run_id_is_valid(id))
        memcpy(owner, id, sizeof(id));
}

/* From the beginning of the file; a signal may come in between. */
static bool write_whole(int fd, const char *text, size_t n_bytes)
{
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = pwrite(fd, text + done, n_bytes - done, (off_t)done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static enum status write_note(const struct run_folder *f)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "run %s\npid %ld\n", f->owner, (long)getpid());
    if (ftruncate(f->lock, 0) != 0 || !write_whole(f->lock, text, (size_t)n))
        return FAIL(ERR_IO, "%s/" LOCK_NAME ": cannot write: %s", f->path, strerror(errno));
    return OK;
}

static enum status take_lock(struct run_folder *f)
{
    long pid = 0;
    int rc = flock(f->lock, LOCK_EX | LOCK_NB), error = errno;
    read_note(f->lock, f->owner, &pid);
    if (rc != 0 && error == EWOULDBLOCK)
        return FAIL(ERR_USAGE,
                    "%s: process %ld is training in this folder; wait for it or stop it (`touch "
                    "%s/STOP` saves and ends it), or choose another output_dir",
                    f->path, pid, f->path);
    if (rc != 0)
        log_warn("%s: the file system gives no lock (%s): see to it that only one run uses this "
                 "folder",
                 f->path, strerror(error));
    return write_note(f);
}

enum status run_folder_open(struct run_folder *f, const char *path)
{
    struct str name = {0};
    enum status status;
    *f = (struct run_folder){.path = mem_strdup(path), .lock = -1};
    str_addf(&name, "%s/" LOCK_NAME, path);
    TRY_GOTO(f->path ? str_status(&name) : FAIL(ERR_MEMORY, "%s: out of memory", path), out);
    TRY_GOTO(file_make_folders(path), out);
    f->lock = open(name.text, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (f->lock < 0) {
        status = FAIL(ERR_IO, "%s: cannot create: %s", name.text, strerror(errno));
        goto out;
    }
    TRY_GOTO(take_lock(f), out);
out:
    str_release(&name);
    if (status != OK)
        run_folder_close(f);
    return status;
}

bool run_folder_is_busy(const char *path)
{
    struct str name = {0};
    str_addf(&name, "%s/" LOCK_NAME, path);
    int fd = name.failed ? -1 : open(name.text, O_RDONLY | O_CLOEXEC);
    bool busy = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        (void)close(fd);
    str_release(&name);
    return busy;
}

void run_folder_close(struct run_folder *f)
{
    if (f->path && f->lock >= 0)
        (void)close(f->lock); /* and so unlocked; the file stays, for the next to lock the same */
    mem_free(f->path);
    *f = (struct run_folder){.lock = -1};
}

enum status run_folder_claim(struct run_folder *f, const char *id)
{
    BUG_ON(!run_id_is_valid(id));
    memcpy(f->owner, id, RUN_ID_TEXT);
    return write_note(f);
}

/* ---- what is in it ---- */

static enum status find_checkpoint(struct pool *pool, const struct run_folder *f, const char *id,
                                   const char **what)
{
    struct checkpoint_entries list;
    TRY(checkpoint_entries(pool, f->path, &list));
    for (size_t i = list.n; i-- > 0 && !*what;) {
        if (list.items[i].ours && strcmp(list.items[i].run, id) != 0)
            *what = pool_printf(pool, "checkpoint-%lld", (long long)list.items[i].step);
    }
    return pool_status(pool);
}

enum status run_folder_find_other(const struct run_folder *f, const char *id, char **what)
{
    struct pool pool;
    const char *found = NULL;
    enum status status;
    *what = NULL;
    pool_init(&pool);
    TRY_GOTO(find_checkpoint(&pool, f, id, &found), out);
    const char *metrics = pool_printf(&pool, "%s/" RUN_FOLDER_METRICS, f->path);
    TRY_GOTO(pool_status(&pool), out);
    if (!found && file_exists(metrics) && strcmp(f->owner, id) != 0)
        found = RUN_FOLDER_METRICS;
    if (found && !(*what = mem_strdup(found)))
        status = FAIL(ERR_MEMORY, "%s: out of memory", f->path);
out:
    pool_release(&pool);
    return status;
}

/* ---- clearing it ---- */

/* Snug's begin with a line of the config. */
static enum status is_our_metrics(const char *path, bool *ours)
{
    static const char kind[] = "\"kind\":\"config\"";
    struct file_map map;
    TRY(file_map_open(&map, path));
    const void *newline = map.data ? memchr(map.data, '\n', map.n_bytes) : NULL;
    size_t n = newline ? (size_t)((const uint8_t *)newline - map.data) : map.n_bytes;
    *ours = n == 0 || memmem(map.data, n, kind, sizeof(kind) - 1) != NULL;
    file_map_close(&map);
    return OK;
}

static enum status clear_metrics(struct pool *pool, const struct run_folder *f)
{
    const char *path = pool_printf(pool, "%s/" RUN_FOLDER_METRICS, f->path);
    bool ours;
    TRY(pool_status(pool));
    if (!file_exists(path))
        return OK;
    TRY(is_our_metrics(path, &ours));
    if (ours)
        return unlink(path) == 0 ? OK
                                 : FAIL(ERR_IO, "%s: cannot remove: %s", path, strerror(errno));
    const char *aside = NULL;
    for (int i = 1; !aside || file_exists(aside); i++) {
        aside = pool_printf(pool, "%s.replaced-%d", path, i);
        TRY(pool_status(pool));
    }
    log_warn("%s is not Snug's: it is now %s", path, aside);
    return file_rename(path, aside);
}

enum status run_folder_clear(const struct run_folder *f)
{
    struct pool pool;
    struct checkpoint_entries list;
    size_t n_removed = 0;
    enum status status;
    pool_init(&pool);
    TRY_GOTO(checkpoint_entries(&pool, f->path, &list), out);
    for (size_t i = 0; i < list.n; i++) {
        if (!list.items[i].ours)
            continue;
        TRY_GOTO(checkpoint_remove(f->path, list.items[i].step), out);
        n_removed++;
    }
    TRY_GOTO(clear_metrics(&pool, f), out);
    if (n_removed > 0)
        log_info("overwrite_output_dir: %zu checkpoint%s of an earlier run removed from %s",
                 n_removed, n_removed == 1 ? "" : "s", f->path);
out:
    pool_release(&pool);
    return status;
}
