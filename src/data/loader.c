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
#include "data/length_order.h"
#include "data/permutation.h"

enum { MESSAGE_BYTES = 1024, MOST_SLOTS = 4096 };

struct loader {
    struct dataset data;
    struct loader_options options;
    int64_t first_sample, n_samples; /* of the split, in the dataset */
    struct loader_cursor consumed;   /* moved by the caller's thread only */
    struct loader_cursor produced;   /* moved by the filling thread only, while it runs */

    struct batch *batches;     /* [n_slots], in the ring */
    struct length_order order; /* of grouped samples; the filling thread's while it runs */

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

size_t loader_ring_bytes(const struct loader_options *o)
{
    size_t n_bytes = batch_bytes(&o->batch);
    if (o->n_slots < 1 || o->n_slots > MOST_SLOTS || n_bytes > SIZE_MAX / MOST_SLOTS)
        return 0;
    return (size_t)o->n_slots * n_bytes;
}

/* Over all ranks. */
static int64_t batch_samples(const struct loader *l)
{
    return batch_rows(&l->options.batch) * l->options.n_ranks;
}

const struct dataset *loader_dataset(const struct loader *l)
{
    return &l->data;
}

int64_t loader_n_samples(const struct loader *l)
{
    return l->n_samples;
}

int64_t loader_n_batches(const struct loader *l)
{
    int64_t n = l->n_samples + (l->options.keep_last ? batch_samples(l) - 1 : 0);
    return n / batch_samples(l);
}

/* ---- opening ---- */

static enum status check_options(const struct loader_options *o)
{
    if (loader_ring_bytes(o) == 0)
        return FAIL(ERR_CONFIG,
                    "%" PRId64 " prefetched batches of %" PRId64 " samples and %d tensors each: "
                    "there must be at least one of each, and none without elements",
                    o->n_slots, batch_rows(&o->batch), o->batch.n_items);
    if (batch_rows(&o->batch) > INT32_MAX)
        return FAIL(ERR_CONFIG, "a batch of %" PRId64 " samples: 2^31-1 are the most",
                    batch_rows(&o->batch));
    if (o->n_ranks < 1 || o->rank < 0 || o->rank >= o->n_ranks || o->n_ranks > INT32_MAX)
        return FAIL(ERR_CONFIG, "rank %" PRId64 " of %" PRId64, o->rank, o->n_ranks);
    if (!(o->val_set_size >= 0.0) || o->val_set_size > 9e15)
        return FAIL(ERR_CONFIG, "val_set_size is %g; it is a part below 1 or a number of samples",
                    o->val_set_size);
    return OK;
}

static enum status fail_short(const struct loader *l)
{
    const struct dataset *d = &l->data;
    const char *advice = d->advice;
    return FAIL(ERR_DATA,
                "the data gives %" PRId64 " %s of %" PRId64 " %s, fewer than one batch of %" PRId64
                " (%" PRId64 " x %" PRId64 " ranks): use more data%s a smaller batch%s%s",
                l->n_samples, d->noun, d->size, d->size_noun, batch_samples(l),
                batch_rows(&l->options.batch), l->options.n_ranks, advice ? "," : " or",
                advice ? " or " : "", advice ? advice : "");
}

/* Cuts the samples into training and evaluation: those for evaluation are the last ones. */
static enum status split_samples(struct loader *l)
{
    const struct loader_options *o = &l->options;
    int64_t n_all = l->data.n_samples;
    double wanted = o->val_set_size < 1.0 ? ceil(o->val_set_size * (double)n_all) : o->val_set_size;
    int64_t n_eval = (int64_t)wanted;
    if (o->split != SPLIT_ALL && n_eval >= n_all)
        return FAIL(ERR_DATA,
                    "val_set_size %g takes %" PRId64 " of the %" PRId64
                    " %s and leaves none to train on: make it smaller",
                    o->val_set_size, n_eval, n_all, l->data.noun);
    if (o->split == SPLIT_EVAL && n_eval == 0)
        return FAIL(ERR_CONFIG, "evaluation needs data: set val_set_size");
    l->first_sample = o->split == SPLIT_EVAL ? n_all - n_eval : 0;
    l->n_samples = o->split == SPLIT_ALL     ? n_all
                   : o->split == SPLIT_TRAIN ? n_all - n_eval
                                             : n_eval;
    return loader_n_batches(l) > 0 ? OK : fail_short(l);
}

/* By the lengths of the samples of the split, and the steps they are seen in. */
static enum status open_order(struct loader *l)
{
    const struct length_order_options o = {.data = &l->data,
                                           .first_sample = l->first_sample,
                                           .n_samples = l->n_samples,
                                           .batch_samples = batch_samples(l),
                                           .n_batches = loader_n_batches(l),
                                           .step_batches = l->options.group_batches,
                                           .seed = l->options.seed,
                                           .shuffle = l->options.shuffle};
    return length_order_init(&l->order, &o);
}

enum status loader_open(struct loader **out, const struct dataset *data,
                        const struct loader_options *options)
{
    *out = NULL;
    TRY(check_options(options));
    struct loader *l;
    TRY(mem_try_array(&l, 1, sizeof(*l)));
    l->data = *data;
    l->options = *options;
    if (data->is_split)
        l->options.split = SPLIT_ALL;
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->filled, NULL);
    (void)pthread_cond_init(&l->freed, NULL);
    enum status status;
    TRY_GOTO(split_samples(l), out);
    TRY_GOTO(mem_try_array(&l->batches, (size_t)options->n_slots, sizeof(*l->batches)), out);
    if (options->group_batches > 0)
        TRY_GOTO(open_order(l), out);
    l->consumed = (struct loader_cursor){
        .seed = options->seed, .n_samples = l->n_samples, .sample_size = data->size};
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
    mem_free(l->batches);
    length_order_release(&l->order);
    mem_free(l);
}

/* ---- the order ---- */

/* Goes to the next epoch when the rest of this one does not make a batch. */
static void enter_batch(const struct loader *l, struct loader_cursor *c)
{
    int64_t needed = l->options.keep_last ? 1 : batch_samples(l);
    if (c->next_sample > l->n_samples - needed) {
        c->epoch++;
        c->next_sample = 0;
    }
}

static void leave_batch(const struct loader *l, struct loader_cursor *c)
{
    enter_batch(l, c);
    c->next_sample = MIN(c->next_sample + batch_samples(l), l->n_samples);
    enter_batch(l, c); /* an epoch ends with its last batch, not with the first of the next */
}

static int64_t sample_at(const struct loader *l, const struct loader_cursor *c, int64_t place)
{
    if (l->options.group_batches > 0)
        return l->first_sample + l->order.samples[place];
    if (!l->options.shuffle)
        return l->first_sample + place;
    return l->first_sample +
           (int64_t)permute(c->seed, (uint64_t)c->epoch, (uint64_t)l->n_samples, (uint64_t)place);
}

/* ---- filling ---- */

static struct batch *slot(const struct loader *l, int64_t i_batch)
{
    return &l->batches[i_batch % l->options.n_slots];
}

static enum status fill_slot(struct loader *l, int64_t i_batch)
{
    const struct loader_options *o = &l->options;
    struct batch *b = slot(l, i_batch);
    b->n_valid = 0;
    enter_batch(l, &l->produced);
    if (o->group_batches > 0)
        b->length = length_order_step(&l->order, l->produced.epoch, l->produced.next_sample);
    for (int64_t row = 0; row < batch_rows(b); row++) {
        int64_t place = l->produced.next_sample + row * o->n_ranks + o->rank;
        if (place < l->n_samples)
            TRY(l->data.read(l->data.user, sample_at(l, &l->produced, place), b, row));
        else
            l->data.blank(l->data.user, b, row);
    }
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
    BUG_ON(l->running);
    if (n_bytes < needed)
        return FAIL(ERR_INTERNAL, "the data ring has %zu bytes, %zu are needed", n_bytes, needed);
    for (int64_t i = 0; i < l->options.n_slots; i++) {
        l->batches[i] = l->options.batch;
        batch_place(&l->batches[i], (uint8_t *)ring + (size_t)i * batch_bytes(&l->options.batch));
    }
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
}

enum status loader_next(struct loader *l, struct batch *batch)
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
    *batch = *slot(l, i_batch);
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
    const struct dataset *d = &l->data;
    if (c->n_samples != l->n_samples || c->sample_size != d->size || c->seed != l->options.seed)
        return FAIL(ERR_CHECKPOINT,
                    "the checkpoint stands in data of %" PRId64 " %s of %" PRId64
                    " %s (seed %" PRIu64 "); this run's data has %" PRId64 " of %" PRId64
                    " (seed %" PRIu64 "): resume with the same data and seed",
                    c->n_samples, d->noun, c->sample_size, d->size_noun, c->seed, l->n_samples,
                    d->size, l->options.seed);
    if (c->epoch < 0 || c->next_sample < 0 || c->next_sample > l->n_samples)
        return FAIL(ERR_CHECKPOINT,
                    "the checkpoint's data position is epoch %" PRId64 ", %" PRId64 " of %" PRId64
                    " %s",
                    c->epoch, c->next_sample, l->n_samples, d->noun);
    l->consumed = *c;
    return OK;
}
