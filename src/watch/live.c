#include "watch/live.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/str.h"
#include "base/utf8.h"
#include "report/observe.h"

const char *live_state_name(enum live_state s)
{
    static const char *const names[LIVE_STATE_COUNT] = {
        "starting", "training", "evaluating", "writing samples", "saving", "paused", "ended"};
    return s < LIVE_STATE_COUNT ? names[s] : "unknown";
}

/* ---- the run's side -------------------------------------------------------------------------- */

/* Under another name until it is whole. Room is taken at once: a store into a file that the disk
 * has no room for would end the process. */
static enum status make(int fd, const char *path, struct live **out)
{
    int error = posix_fallocate(fd, 0, sizeof(struct live));
    if (error)
        return FAIL(ERR_IO, "%s: cannot write: %s", path, strerror(error));
    void *p = mmap(NULL, sizeof(struct live), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return FAIL(ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    *out = p;
    return OK;
}

enum status live_create(struct live **out, const char *folder, const struct live_run *run)
{
    char path[4096], temporary[4096];
    *out = NULL;
    if ((size_t)snprintf(path, sizeof(path), "%s/" LIVE_NAME, folder) >= sizeof(path) ||
        (size_t)snprintf(temporary, sizeof(temporary), "%s/" LIVE_NAME ".new", folder) >=
            sizeof(temporary))
        return FAIL(ERR_IO, "%s: the path is too long", folder);
    int fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot create: %s", temporary, strerror(errno));
    enum status status = make(fd, path, out);
    (void)close(fd);
    if (status == OK) {
        **out = (struct live){.magic = LIVE_MAGIC,
                              .version = LIVE_VERSION,
                              .n_bytes = sizeof(struct live),
                              .position = UINT32_MAX,
                              .run = *run};
        if (rename(temporary, path) != 0)
            status = FAIL(ERR_IO, "%s: cannot rename: %s", path, strerror(errno));
    }
    if (status != OK) {
        (void)unlink(temporary);
        live_close(*out);
        *out = NULL;
    }
    return status;
}

void live_close(struct live *l)
{
    if (l)
        (void)munmap(l, sizeof(*l));
}

void live_begin(struct live *l)
{
    __atomic_store_n(&l->sequence, l->sequence + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    l->now.time = observe_wall_time();
}

void live_end(struct live *l)
{
    __atomic_store_n(&l->sequence, l->sequence + 1, __ATOMIC_RELEASE);
}

void live_add_event(struct live *l, int64_t step, const char *fmt, ...)
{
    struct live_event *e = &l->events[l->n_events++ % LIVE_EVENTS];
    va_list args;
    *e = (struct live_event){.time = l->now.time, .step = step};
    va_start(args, fmt);
    (void)vsnprintf(e->text, sizeof(e->text), fmt, args);
    va_end(args);
}

/* As much of a text as fits, in whole characters. */
static void copy_text(char *out, size_t size, const char *text)
{
    size_t n = utf8_prefix(text, MIN(strlen(text), size - 1));
    memcpy(out, text, n);
    out[n] = '\0';
}

void live_add_sample(struct live *l, int64_t step, const char *prompt, const char *text)
{
    struct live_sample *s = &l->samples[l->n_samples++ % LIVE_SAMPLES];
    *s = (struct live_sample){.time = l->now.time, .step = step};
    copy_text(s->prompt, sizeof(s->prompt), prompt);
    copy_text(s->text, sizeof(s->text), text);
}

/* ---- everybody else's ------------------------------------------------------------------------ */

static enum status open_live(const char *folder, int *fd)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/" LIVE_NAME, folder) >= sizeof(path))
        return FAIL(ERR_IO, "%s: the path is too long", folder);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd >= 0)
        return OK;
    if (errno == ENOENT)
        return FAIL(ERR_IO,
                    "%s: no run has trained here yet; give the output_dir of one (its config says "
                    "which)",
                    folder);
    return FAIL(ERR_IO, "%s: cannot read: %s", path, strerror(errno));
}

static bool is_consistent(int fd, const struct live *l)
{
    uint64_t again;
    return l->sequence % 2 == 0 &&
           pread(fd, &again, sizeof(again), offsetof(struct live, sequence)) == sizeof(again) &&
           again == l->sequence;
}

static void end_text(char *text, size_t size)
{
    text[size - 1] = '\0';
    text[utf8_prefix(text, strlen(text))] = '\0';
}

/* Texts of a file that anybody may have written end somewhere. */
static void end_texts(struct live *l)
{
    struct live_run *r = &l->run;
    r->id[sizeof(r->id) - 1] = r->model[sizeof(r->model) - 1] = '\0';
    r->device[sizeof(r->device) - 1] = r->address[sizeof(r->address) - 1] = '\0';
    r->precision[sizeof(r->precision) - 1] = r->rate[sizeof(r->rate) - 1] = '\0';
    r->unit[sizeof(r->unit) - 1] = '\0';
    l->now.message[sizeof(l->now.message) - 1] = '\0';
    for (int i = 0; i < LIVE_EVENTS; i++)
        l->events[i].text[LIVE_TEXT - 1] = '\0';
    l->n_events = MAX(l->n_events, (int64_t)0);
    for (int i = 0; i < LIVE_SAMPLES; i++) {
        end_text(l->samples[i].prompt, LIVE_PROMPT);
        end_text(l->samples[i].text, LIVE_SAMPLE);
    }
    l->n_samples = MAX(l->n_samples, (int64_t)0);
}

static enum status read_live(int fd, const char *folder, struct live *out)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        ssize_t n = pread(fd, out, sizeof(*out), 0);
        if (n < (ssize_t)offsetof(struct live, position) || out->magic != LIVE_MAGIC)
            return FAIL(ERR_DATA, "%s/" LIVE_NAME ": not the state of a run", folder);
        if (out->version != LIVE_VERSION || out->n_bytes != sizeof(*out) ||
            n < (ssize_t)sizeof(*out))
            return FAIL(
                ERR_UNSUPPORTED,
                "%s: the run there is another version or build of Snug (state %u of %u bytes, "
                "this program reads %d of %zu): watch it with the program that runs it",
                folder, out->version, out->n_bytes, (int)LIVE_VERSION, sizeof(*out));
        if (is_consistent(fd, out)) {
            end_texts(out);
            return OK;
        }
        (void)usleep(50);
    }
    return FAIL(ERR_DATA, "%s/" LIVE_NAME ": the run stopped while it wrote it", folder);
}

enum status live_read(const char *folder, struct live *out)
{
    int fd;
    TRY(open_live(folder, &fd));
    enum status status = read_live(fd, folder, out);
    (void)close(fd);
    return status;
}

enum status live_read_position(const char *folder, uint64_t *out)
{
    int fd;
    TRY(open_live(folder, &fd));
    ssize_t n = pread(fd, out, sizeof(*out), offsetof(struct live, position));
    (void)close(fd);
    return n == sizeof(*out) ? OK : FAIL(ERR_DATA, "%s/" LIVE_NAME ": cut short", folder);
}

int64_t live_process_start(int64_t pid)
{
    char path[64], text[1024];
    int64_t start = 0;
    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    /* Field 22, counted behind the name, which may hold anything. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at && field == 2 && at[1] == 'Z')
            return 0; /* it has ended; nobody has asked how */
    }
    if (at)
        (void)sscanf(at, "%" SCNd64, &start); // NOLINT(cert-err34-c)
    return start;
}

bool live_is_running(const struct live_run *run)
{
    return run->process_start != 0 && live_process_start(run->pid) == run->process_start;
}
