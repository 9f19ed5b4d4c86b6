/* queue.c: copies that are made one after the other while others compute.
 *
 * A ring of requests between one thread that enqueues them and one that makes them. Copies are
 * numbered; an event is the number of the last one before it. The first copy that fails is the last
 * that is made: those behind it are counted and left out, and whoever waits hears of it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/machine.h"
#include "device/disk/disk_internal.h"

enum { N_REQUESTS = 256 };

/* Seconds after which whoever waits hears why. */
#define PATIENCE_S 30.0
static _Atomic double patience_s = PATIENCE_S;

void disk_set_patience(double seconds)
{
    patience_s = seconds > 0 ? seconds : PATIENCE_S;
}

struct queue_state {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t added, done;
    struct file_range requests[N_REQUESTS]; /* number k at k % N_REQUESTS */
    int64_t n_added, n_done;
    bool ends;
    int64_t *events; /* copies before each */
    int n_events;
};

static void note_failure(struct disk *d, enum status status)
{
    if (status == OK || d->failed != OK)
        return;
    d->failed = status;
    (void)snprintf(d->message, sizeof(d->message), "%s", status_message());
}

/* A copy of the queue or of a task. */
static void make_copy(struct disk *d, const struct file_range *r)
{
    (void)pthread_mutex_lock(&d->port_lock);
    double start = disk_now();
    if (d->failed == OK)
        note_failure(d, transfer(&d->port, r));
    double seconds = disk_now() - start;
    *(r->write ? &d->traffic.n_written : &d->traffic.n_read) += r->n_bytes;
    *(r->write ? &d->traffic.written_s : &d->traffic.read_s) += seconds;
    (void)pthread_mutex_unlock(&d->port_lock);
}

void disk_traffic(struct disk *d, struct disk_traffic *out)
{
    (void)pthread_mutex_lock(&d->port_lock);
    *out = d->traffic;
    (void)pthread_mutex_unlock(&d->port_lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *work(void *user)
{
    struct disk *d = user;
    struct queue_state *q = d->queue;
    (void)pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->n_done == q->n_added && !q->ends)
            (void)pthread_cond_wait(&q->added, &q->lock);
        if (q->n_done == q->n_added)
            break;
        struct file_range r = q->requests[q->n_done % N_REQUESTS];
        (void)pthread_mutex_unlock(&q->lock);
        make_copy(d, &r);
        (void)pthread_mutex_lock(&q->lock);
        q->n_done++;
        (void)pthread_cond_broadcast(&q->done);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

static enum status queue_open(struct disk *d)
{
    pthread_condattr_t clock;
    struct queue_state *q;
    if (d->queue)
        return OK;
    TRY(mem_try_array(&q, 1, sizeof(*q)));
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->added, NULL);
    (void)pthread_cond_init(&q->done, &clock);
    (void)pthread_condattr_destroy(&clock);
    d->queue = q;
    int error = pthread_create(&q->thread, NULL, work, d);
    if (error == 0)
        return OK;
    d->queue = NULL;
    mem_free(q);
    return FAIL(ERR_FAILED, "no thread for the disk tier: %s", strerror(error));
}

void queue_close(struct disk *d)
{
    struct queue_state *q = d->queue;
    if (!q)
        return;
    (void)pthread_mutex_lock(&q->lock);
    q->ends = true;
    (void)pthread_cond_signal(&q->added);
    (void)pthread_mutex_unlock(&q->lock);
    (void)pthread_join(q->thread, NULL);
    (void)pthread_mutex_destroy(&q->lock);
    (void)pthread_cond_destroy(&q->added);
    (void)pthread_cond_destroy(&q->done);
    mem_free(q->events);
    mem_free(q);
    d->queue = NULL;
}

/* ---- who enqueues ---------------------------------------------------------------------------- */

enum status disk_prepare(struct disk *d, int n_events)
{
    TRY(queue_open(d));
    struct queue_state *q = d->queue;
    if (n_events <= q->n_events)
        return OK;
    int64_t *events = mem_realloc(q->events, (size_t)n_events * sizeof(*events));
    if (!events)
        return FAIL(ERR_MEMORY, "out of memory for %d events", n_events);
    memset(events + q->n_events, 0, (size_t)(n_events - q->n_events) * sizeof(*events));
    q->events = events;
    q->n_events = n_events;
    return OK;
}

/* What the copies so far came to. */
static enum status outcome(struct disk *d)
{
    (void)pthread_mutex_lock(&d->port_lock);
    enum status status = d->failed;
    (void)pthread_mutex_unlock(&d->port_lock);
    return status == OK ? OK : FAIL(status, "%s", d->message);
}

static void say_that_it_takes_long(const struct disk *d, double since)
{
    log_warn("offload_folder: the disk of '%s' has kept the step waiting for %.0f s", d->folder,
             now_s() - since);
    port_note_slow();
}

static struct timespec later(struct timespec t, double seconds)
{
    long whole = (long)seconds, nanoseconds = t.tv_nsec + (long)(1e9 * (seconds - (double)whole));
    return (struct timespec){t.tv_sec + whole + nanoseconds / 1000000000, nanoseconds % 1000000000};
}

/* Until so many copies are made. The lock is held. */
static void wait_for(struct disk *d, int64_t n_copies)
{
    struct queue_state *q = d->queue;
    double since = now_s();
    while (q->n_done < n_copies) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until = later(until, patience_s);
        if (pthread_cond_timedwait(&q->done, &q->lock, &until) == ETIMEDOUT)
            say_that_it_takes_long(d, since);
    }
}

static enum status wait_until(struct disk *d, int64_t n_copies)
{
    struct queue_state *q = d->queue;
    (void)pthread_mutex_lock(&q->lock);
    wait_for(d, n_copies);
    (void)pthread_mutex_unlock(&q->lock);
    return outcome(d);
}

enum status disk_enqueue(struct disk *d, struct place to, struct place from, int64_t n_bytes)
{
    struct file_range r;
    TRY(disk_find_range(d, to, from, n_bytes, &r));
    TRY(queue_open(d));
    struct queue_state *q = d->queue;
    (void)pthread_mutex_lock(&q->lock);
    wait_for(d, q->n_added - N_REQUESTS + 1);
    q->requests[q->n_added++ % N_REQUESTS] = r;
    (void)pthread_cond_signal(&q->added);
    (void)pthread_mutex_unlock(&q->lock);
    return OK;
}

static bool has_event(const struct disk *d, int event)
{
    return d->queue && event >= 0 && event < d->queue->n_events;
}

void disk_record(struct disk *d, int event)
{
    BUG_ON(!has_event(d, event));
    d->queue->events[event] = d->queue->n_added; /* by the thread that enqueues */
}

enum status disk_wait(struct disk *d, int event)
{
    return has_event(d, event) ? wait_until(d, d->queue->events[event]) : OK;
}

enum status disk_sync(struct disk *d)
{
    return d->queue ? wait_until(d, d->queue->n_added) : outcome(d);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct disk_task {
    struct disk *disk;
    struct file_range range;
};

static bool is_same(const struct file_range *a, const struct file_range *b)
{
    return a->file == b->file && a->at == b->at && a->n_bytes == b->n_bytes && a->data == b->data &&
           a->write == b->write;
}

enum status disk_task(struct disk *d, struct place to, struct place from, int64_t n_bytes,
                      struct disk_task **out)
{
    struct file_range r;
    TRY(disk_find_range(d, to, from, n_bytes, &r));
    for (size_t i = 0; i < d->tasks.n; i++) {
        *out = d->tasks.items[i];
        if (is_same(&(*out)->range, &r))
            return OK;
    }
    TRY(mem_try_array(out, 1, sizeof(**out)));
    **out = (struct disk_task){d, r};
    enum status status = vec_push(&d->tasks, *out);
    if (status != OK)
        mem_free(*out);
    return status;
}

void disk_task_run(void *user)
{
    struct disk_task *t = user;
    make_copy(t->disk, &t->range);
}
