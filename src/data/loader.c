/* loader.c: the ring of batches and the thread that fills it.
 *
 *     slots:    [ held ][ held ][ ready ][ ready ][ being filled ][ free ]
 *               n_released      n_taken           n_filled
 *
 * The three counters only go up; slot i of the ring holds the batches i, i + n_slots, ... All three
 * and the thread's verdict are guarded by one mutex; the slots themselves belong to the thread from
 * n_filled on and to the caller before it, so they are written and read without the lock.
 *
 * The caller's cursor moves at release and is computed from the number of batches released, by
 * the same function the thread uses to find the next batch: what was made ready too early leaves no
 * trace in it.
 */
#include "data/loader.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/permutation.h"

enum { SLOT_ALIGN = 64, MESSAGE_BYTES = 1024 };

struct loader {
    const struct source *source;
    struct loader_options options;
    int64_t first_window, n_windows; /* of the split, in the source */
    struct loader_cursor consumed;   /* moved by the caller's thread only */
    struct loader_cursor produced;   /* moved by the filling thread only, while it runs */

    uint8_t *ring;
    size_t slot_bytes;
    int64_t *n_valid; /* [n_slots] */
    int32_t *scratch; /* [2, seq_len + 1]: a window and its labels */

    pthread_t thread;
    int running;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    int64_t n_filled, n_taken, n_released;
    int stopping;
    enum status failure;
    char message[MESSAGE_BYTES];
};

/* ---- sizes ---- */

static size_t array_bytes(const struct loader_options *o)
{
    size_t n_bytes = (size_t)o->batch * (size_t)o->seq_len * sizeof(int32_t);
    return (n_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

size_t loader_ring_bytes(const struct loader_options *o)
{
    if (o->batch < 1 || o->seq_len < 1 || o->n_slots < 1 || o->batch > INT32_MAX ||
        o->seq_len > INT32_MAX || o->n_slots > 4096)
        return 0;
    return (size_t)o->n_slots * 2 * array_bytes(o);
}

static int64_t batch_windows(const struct loader *l)
{
    return l->options.batch * l->options.n_ranks;
}

int64_t loader_n_windows(const struct loader *l)
{
    return l->n_windows;
}

int64_t loader_n_batches(const struct loader *l)
{
    int64_t n = l->n_windows + (l->options.keep_last ? batch_windows(l) - 1 : 0);
    return n / batch_windows(l);
}

/* ---- opening ---- */

static enum status check_options(const struct loader_options *o)
{
    if (loader_ring_bytes(o) == 0)
        return FAIL(ERR_CONFIG,
                    "batch %" PRId64 ", sequence length %" PRId64 ", %" PRId64
                    " prefetched batches: each must be at least 1",
                    o->batch, o->seq_len, o->n_slots);
    if (o->n_ranks < 1 || o->rank < 0 || o->rank >= o->n_ranks || o->n_ranks > INT32_MAX)
        return FAIL(ERR_CONFIG, "rank %" PRId64 " of %" PRId64, o->rank, o->n_ranks);
    if (!(o->val_set_size >= 0.0) || o->val_set_size > 9e15)
        return FAIL(ERR_CONFIG, "val_set_size is %g; it is a part below 1 or a number of sequences",
                    o->val_set_size);
    return OK;
}

/* Cuts the windows into training and evaluation: the evaluation windows are the last ones. */
static enum status cut_windows(struct loader *l)
{
    const struct loader_options *o = &l->options;
    int64_t n_tokens = source_n_tokens(l->source), n_all = n_tokens / (o->seq_len + 1);
    if (n_all == 0)
        return FAIL(ERR_DATA,
                    "the data has %" PRId64 " tokens, fewer than one sequence of %" PRId64
                    " + 1: use more data or a shorter sequence length",
                    n_tokens, o->seq_len);
    double wanted = o->val_set_size < 1.0 ? ceil(o->val_set_size * (double)n_all) : o->val_set_size;
    int64_t n_eval = (int64_t)wanted;
    if (o->split != SPLIT_ALL && n_eval >= n_all)
        return FAIL(ERR_DATA,
                    "val_set_size %g takes %" PRId64 " of the %" PRId64
                    " sequences and leaves none to train on: make it smaller",
                    o->val_set_size, n_eval, n_all);
    if (o->split == SPLIT_EVAL && n_eval == 0)
        return FAIL(ERR_CONFIG, "evaluation needs data: set val_set_size");
    l->first_window = o->split == SPLIT_EVAL ? n_all - n_eval : 0;
    l->n_windows = o->split == SPLIT_ALL     ? n_all
                   : o->split == SPLIT_TRAIN ? n_all - n_eval
                                             : n_eval;
    if (loader_n_batches(l) == 0)
        return FAIL(ERR_DATA,
                    "the data gives %" PRId64 " sequences of %" PRId64
                    " tokens, fewer than one batch of %" PRId64 " (%" PRId64 " x %" PRId64
                    " ranks): use more data, a smaller batch or a shorter sequence length",
                    l->n_windows, o->seq_len, batch_windows(l), o->batch, o->n_ranks);
    return OK;
}

enum status loader_open(struct loader **out, const struct source *source,
                        const struct loader_options *options)
{
    *out = NULL;
    TRY(check_options(options));
    struct loader *l;
    TRY(mem_try_array(&l, 1, sizeof(*l)));
    l->source = source;
    l->options = *options;
    l->slot_bytes = 2 * array_bytes(options);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->filled, NULL);
    (void)pthread_cond_init(&l->freed, NULL);
    enum status status;
    TRY_GOTO(cut_windows(l), out);
    TRY_GOTO(mem_try_array(&l->n_valid, (size_t)options->n_slots, sizeof(*l->n_valid)), out);
    TRY_GOTO(mem_try_array(&l->scratch, 2 * ((size_t)options->seq_len + 1), sizeof(*l->scratch)),
             out);
    l->consumed = (struct loader_cursor){
        .seed = options->seed, .n_windows = l->n_windows, .seq_len = options->seq_len};
out:
    if (status != OK)
        loader_free(l);
    else
        *out = l;
    return status;
}

void loader_free(struct loader *l)
{
    if (!l)
        return;
    loader_stop(l);
    (void)pthread_mutex_destroy(&l->lock);
    (void)pthread_cond_destroy(&l->filled);
    (void)pthread_cond_destroy(&l->freed);
    mem_free(l->n_valid);
    mem_free(l->scratch);
    mem_free(l);
}

/* ---- the order ---- */

/* Goes to the next epoch when the rest of this one does not make a batch. */
static void enter_batch(const struct loader *l, struct loader_cursor *c)
{
    int64_t needed = l->options.keep_last ? 1 : batch_windows(l);
    if (c->next_window > l->n_windows - needed) {
        c->epoch++;
        c->next_window = 0;
    }
}

static void leave_batch(const struct loader *l, struct loader_cursor *c)
{
    enter_batch(l, c);
    c->next_window = MIN(c->next_window + batch_windows(l), l->n_windows);
    enter_batch(l, c); /* an epoch ends with its last batch, not with the first of the next */
}

static int64_t window_at(const struct loader *l, const struct loader_cursor *c, int64_t place)
{
    if (!l->options.shuffle)
        return l->first_window + place;
    return l->first_window +
           (int64_t)permute(c->seed, (uint64_t)c->epoch, (uint64_t)l->n_windows, (uint64_t)place);
}

/* ---- filling ---- */

static int32_t *slot_tokens(const struct loader *l, int64_t i_batch)
{
    return (int32_t *)(void *)(l->ring + (size_t)(i_batch % l->options.n_slots) * l->slot_bytes);
}

static int32_t *slot_targets(const struct loader *l, int64_t i_batch)
{
    return (int32_t *)(void *)((uint8_t *)slot_tokens(l, i_batch) + l->slot_bytes / 2);
}

static void fill_ignored(int32_t *tokens, int32_t *targets, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = 0;
        targets[i] = LABEL_IGNORED;
    }
}

static enum status fill_slot(struct loader *l, int64_t i_batch)
{
    const struct loader_options *o = &l->options;
    const int64_t length = o->seq_len;
    int32_t *tokens = slot_tokens(l, i_batch), *targets = slot_targets(l, i_batch);
    int32_t *window = l->scratch, *labels = l->scratch + length + 1;
    int64_t n_valid = 0;
    enter_batch(l, &l->produced);
    for (int64_t row = 0; row < o->batch; row++, tokens += length, targets += length) {
        int64_t place = l->produced.next_window + row * o->n_ranks + o->rank;
        if (place >= l->n_windows) {
            fill_ignored(tokens, targets, length);
            continue;
        }
        int64_t first = window_at(l, &l->produced, place) * (length + 1);
        TRY(source_read(l->source, first, length + 1, window, labels));
        memcpy(tokens, window, (size_t)length * sizeof(*tokens));
        memcpy(targets, labels + 1, (size_t)length * sizeof(*targets));
        for (int64_t i = 0; i < length; i++)
            n_valid += targets[i] != LABEL_IGNORED;
    }
    l->n_valid[i_batch % o->n_slots] = n_valid;
    leave_batch(l, &l->produced);
    return OK;
}

/* Waits for a free slot; false when it is time to stop. */
static int wait_for_room(struct loader *l, int64_t *i_batch)
{
    (void)pthread_mutex_lock(&l->lock);
    while (!l->stopping && l->n_filled - l->n_released >= l->options.n_slots)
        (void)pthread_cond_wait(&l->freed, &l->lock);
    *i_batch = l->n_filled;
    int go_on = !l->stopping;
    (void)pthread_mutex_unlock(&l->lock);
    return go_on;
}

static void *fill_ring(void *argument)
{
    struct loader *l = argument;
    enum status status = OK;
    int64_t i_batch;
    while (status == OK && wait_for_room(l, &i_batch)) {
        status = fill_slot(l, i_batch);
        (void)pthread_mutex_lock(&l->lock);
        if (status == OK) {
            l->n_filled++;
        } else {
            l->failure = status;
            (void)snprintf(l->message, sizeof(l->message), "%s", status_message());
        }
        (void)pthread_cond_signal(&l->filled);
        (void)pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

/* ---- running ---- */

enum status loader_start(struct loader *l, void *ring, size_t n_bytes)
{
    size_t needed = loader_ring_bytes(&l->options);
    BUG_ON(l->running || (uintptr_t)ring % SLOT_ALIGN != 0);
    if (n_bytes < needed)
        return FAIL(ERR_INTERNAL, "the data ring has %zu bytes, %zu are needed", n_bytes, needed);
    l->ring = ring;
    l->produced = l->consumed;
    l->n_filled = l->n_taken = l->n_released = 0;
    l->stopping = 0;
    l->failure = OK;

    /* Signals are for the thread that trains: it saves before it ends. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&l->thread, NULL, fill_ring, l);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return FAIL(ERR_FAILED, "cannot start the data thread: %s", strerror(rc));
    l->running = 1;
    return OK;
}

void loader_stop(struct loader *l)
{
    if (!l->running)
        return;
    (void)pthread_mutex_lock(&l->lock);
    l->stopping = 1;
    (void)pthread_cond_signal(&l->freed);
    (void)pthread_mutex_unlock(&l->lock);
    (void)pthread_join(l->thread, NULL);
    l->running = 0;
    l->ring = NULL;
}

enum status loader_next(struct loader *l, const int32_t **tokens, const int32_t **targets,
                        int64_t *n_valid)
{
    BUG_ON(!l->running);
    (void)pthread_mutex_lock(&l->lock);
    int held_all = l->n_taken - l->n_released >= l->options.n_slots;
    while (!held_all && l->failure == OK && l->n_filled == l->n_taken)
        (void)pthread_cond_wait(&l->filled, &l->lock);
    int ready = !held_all && l->n_filled > l->n_taken;
    int64_t i_batch = l->n_taken;
    if (ready)
        l->n_taken++;
    enum status failure = l->failure;
    (void)pthread_mutex_unlock(&l->lock);

    if (held_all)
        return FAIL(ERR_INTERNAL, "all %" PRId64 " batches of the data ring are held; release one",
                    l->options.n_slots);
    if (!ready) /* the thread has ended, so its message does not change any more */
        return FAIL(failure, "%s", l->message);
    *tokens = slot_tokens(l, i_batch);
    *targets = slot_targets(l, i_batch);
    *n_valid = l->n_valid[i_batch % l->options.n_slots];
    return OK;
}

void loader_release_slot(struct loader *l)
{
    leave_batch(l, &l->consumed);
    (void)pthread_mutex_lock(&l->lock);
    BUG_ON(l->n_released >= l->n_taken);
    l->n_released++;
    (void)pthread_cond_signal(&l->freed);
    (void)pthread_mutex_unlock(&l->lock);
}

/* ---- the cursor ---- */

void loader_get_cursor(const struct loader *l, struct loader_cursor *cursor)
{
    *cursor = l->consumed;
}

enum status loader_set_cursor(struct loader *l, const struct loader_cursor *c)
{
    BUG_ON(l->running);
    if (c->n_windows != l->n_windows || c->seq_len != l->options.seq_len ||
        c->seed != l->options.seed)
        return FAIL(ERR_CHECKPOINT,
                    "the checkpoint stands in data of %" PRId64 " sequences of %" PRId64
                    " tokens (seed %" PRIu64 "); this run's data has %" PRId64 " of %" PRId64
                    " (seed %" PRIu64 "): resume with the same data, sequence length and seed",
                    c->n_windows, c->seq_len, c->seed, l->n_windows, l->options.seq_len,
                    l->options.seed);
    if (c->epoch < 0 || c->next_window < 0 || c->next_window > l->n_windows)
        return FAIL(ERR_CHECKPOINT,
                    "the checkpoint's data position is epoch %" PRId64 ", sequence %" PRId64
                    " of %" PRId64,
                    c->epoch, c->next_window, l->n_windows);
    l->consumed = *c;
    return OK;
}
