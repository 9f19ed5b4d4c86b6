#include "data/length_order.h"

#include "base/alloc.h"
#include "data/permutation.h"

enum { STRETCH_STEPS = 50, FEWEST_STRETCHES = 4 };

enum status length_order_init(struct length_order *o, const struct length_order_options *options)
{
    size_t n = (size_t)options->n_samples;
    *o = (struct length_order){.options = *options, .epoch = -1};
    TRY(mem_try_array(&o->lengths, n, sizeof(*o->lengths)));
    TRY(mem_try_array(&o->samples, n, sizeof(*o->samples)));
    for (int64_t i = 0; i < options->n_samples; i++) {
        int64_t length;
        TRY(options->data->length(options->data->user, options->first_sample + i, &length));
        o->lengths[i] = (int32_t)length;
    }
    return OK;
}

void length_order_release(struct length_order *o)
{
    mem_free(o->lengths);
    mem_free(o->samples);
    *o = (struct length_order){0};
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* Longer first; of one length in the order of the data: no two samples are equal. */
static bool comes_first(const struct length_order *o, int64_t a, int64_t b)
{
    return o->lengths[a] != o->lengths[b] ? o->lengths[a] > o->lengths[b] : a < b;
}

static void swap(int64_t *a, int64_t *b)
{
    int64_t x = *a;
    *a = *b;
    *b = x;
}

/* The one of x[root] and what is below it that comes last goes to the top. */
static void sift(const struct length_order *o, int64_t *x, int64_t root, int64_t n)
{
    for (int64_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && comes_first(o, x[child], x[child + 1]))
            child++;
        if (!comes_first(o, x[root], x[child]))
            return;
        swap(&x[root], &x[child]);
    }
}

/* A heap: in place, as the thread that sorts may not allocate. */
static void sort(const struct length_order *o, int64_t *x, int64_t n)
{
    for (int64_t i = n / 2; i-- > 0;)
        sift(o, x, i, n);
    for (int64_t end = n; end-- > 1;) {
        swap(&x[0], &x[end]);
        sift(o, x, 0, end);
    }
}

/* ---- the order of an epoch ------------------------------------------------------------------- */

static int64_t stretch_samples(const struct length_order_options *p)
{
    int64_t step = p->batch_samples * p->step_batches;
    int64_t n_steps = MIN(p->n_samples / (step * FEWEST_STRETCHES), (int64_t)STRETCH_STEPS);
    return step * MAX(n_steps, (int64_t)1);
}

static void make(struct length_order *o, int64_t epoch)
{
    const struct length_order_options *p = &o->options;
    int64_t n = p->n_samples, stretch = stretch_samples(p), longest = 0;
    for (int64_t i = 0; i < n; i++)
        o->samples[i] =
            !p->shuffle ? i : (int64_t)permute(p->seed, (uint64_t)epoch, (uint64_t)n, (uint64_t)i);
    for (int64_t i = 0; i < n; i += stretch) {
        sort(o, o->samples + i, MIN(stretch, n - i));
        if (o->lengths[o->samples[i]] > o->lengths[o->samples[longest]])
            longest = i;
    }
    swap(&o->samples[0], &o->samples[longest]);
    o->epoch = epoch;
}

int64_t length_order_step(struct length_order *o, int64_t epoch, int64_t next)
{
    const struct length_order_options *p = &o->options;
    if (o->epoch != epoch)
        make(o, epoch);
    int64_t batch = epoch * p->n_batches + next / p->batch_samples;
    int64_t first = batch - batch % p->step_batches - epoch * p->n_batches;
    int64_t longest = 1;
    if (first < 0 || first + p->step_batches > p->n_batches)
        return p->data->size;
    for (int64_t i = first * p->batch_samples;
         i < MIN((first + p->step_batches) * p->batch_samples, p->n_samples); i++)
        longest = MAX(longest, (int64_t)o->lengths[o->samples[i]]);
    return longest;
}
