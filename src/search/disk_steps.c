#include "search/disk_steps.h"

#include <math.h>

#include "search/alternative.h"

/* A step has to be shorter by this part. */
#define WORTH 0.002

enum { MOST_TRIED = 40, LITTLE_BYTES = 16 << 20 };

/* More or fewer blocks on disk; what the ring is multiplied by. */
static const struct change {
    int disk[EXTENT_COUNT];
    double ring;
} changes[] = {
    {.ring = 1},
    {.ring = 1, .disk = {[EXTENT_STATES] = 1}},
    {.ring = 1, .disk = {[EXTENT_MOVED] = 1}},
    {.ring = 1, .disk = {[EXTENT_STATES] = -1, [EXTENT_MOVED] = 2}},
    {.ring = 1, .disk = {[EXTENT_STATES] = 1, [EXTENT_MOVED] = -1}},
    {.ring = 1, .disk = {[EXTENT_STATES] = 1, [EXTENT_MOVED] = -2}},
    {.ring = 1, .disk = {[EXTENT_STATES] = -1}},
    {.ring = 1, .disk = {[EXTENT_MOVED] = -1}},
    {.ring = 1, .disk = {[EXTENT_WEIGHTS] = 1}},
    {.ring = 1, .disk = {[EXTENT_WEIGHTS] = -1}},
    {.ring = 1.4},
    {.ring = 0.7},
};

struct walk {
    struct workload *w;
    const struct limits *limits;
    const struct search_bounds *bounds;
    const struct kernel_times *times;
    struct decisions *d; /* the best so far */
    double seconds;      /* of a step with them */
    size_t next;         /* change to begin with: the one that helped last may help again */
    int n_tried;
};

/* Bytes that a budget of the host leaves, as far as what is on disk can use them. */
static int64_t spare_bytes(const struct walk *x)
{
    struct forecast f = {0};
    forecast_memory(&f, x->w, x->limits);
    int64_t left = f.budget.n_bytes[TIER_HOST] - f.budget.needs[TIER_HOST];
    return MAX(MIN(left, x->w->n_bytes[TIER_DISK]), (int64_t)0);
}

/* *d with the change; false: there is none. */
static bool apply(const struct walk *x, const struct change *c, struct decisions *d)
{
    const int n_blocks = workload_stage(x->w, STAGE_TRAIN)->plan.n_blocks;
    for (int e = 0; e < EXTENT_COUNT; e++) {
        int n = MIN(d->disk[e], n_blocks + 1) + c->disk[e];
        bool is_open = !x->bounds->fixed[e] && n >= 0 && n <= n_blocks + 1;
        if (c->disk[e] != 0 && !is_open)
            return false;
        if (c->disk[e] != 0)
            d->disk[e] = n > n_blocks ? EXTENT_WHOLE : n;
    }
    d->ring_bytes = (int64_t)((double)d->ring_bytes * c->ring);
    return decisions_use_disk(d);
}

/* The workload gets programs of *d; is that better? */
static enum status try_one(struct walk *x, const struct decisions *d, bool *found)
{
    double worth = (1 - WORTH) * x->seconds, seconds;
    x->n_tried++;
    TRY(alternative_with(x->w, x->limits, x->times, d, worth, &seconds));
    *found = seconds < worth;
    if (*found) {
        *x->d = *d;
        x->seconds = seconds;
    }
    return OK;
}

/* As it is, then with what the host has left for what is on its way: halfway_bytes bound reads and
 * writes alike, so not all of it. */
static enum status try_change(struct walk *x, const struct change *c, bool *found)
{
    static const int parts[] = {2, 4};
    struct decisions d = *x->d;
    if (!apply(x, c, &d))
        return OK;
    TRY(try_one(x, &d, found));
    int64_t halfway = MAX(d.halfway_bytes, d.ring_bytes), spare = spare_bytes(x);
    for (size_t i = 0; i < ARRAY_LEN(parts) && spare > LITTLE_BYTES && !*found; i++) {
        d.halfway_bytes = halfway + spare / parts[i];
        TRY(try_one(x, &d, found));
    }
    return OK;
}

/* The first of the changes that helps. */
static enum status find_better(struct walk *x, bool *found)
{
    for (size_t i = 0; i < ARRAY_LEN(changes) && x->n_tried < MOST_TRIED && !*found; i++) {
        size_t k = (x->next + i) % ARRAY_LEN(changes);
        TRY(try_change(x, &changes[k], found));
        if (*found)
            x->next = k;
    }
    return OK;
}

static enum status step(struct walk *x, bool *found)
{
    struct set_aside before;
    *found = false;
    TRY(workload_set_aside(x->w, &before));
    enum status status = find_better(x, found);
    if (*found)
        set_aside_release(&before);
    else
        workload_bring_back(x->w, &before);
    return status;
}

enum status disk_steps(struct workload *w, const struct limits *limits,
                       const struct search_bounds *bounds, const struct kernel_times *times,
                       struct decisions *d)
{
    struct walk x = {.w = w, .limits = limits, .bounds = bounds, .times = times, .d = d};
    bool goes_on = true;
    if (!workload_stage(w, STAGE_TRAIN) || !decisions_use_disk(d) ||
        device_host_reaches(w->device, TIER_DEVICE))
        return OK;
    TRY(alternative_now(w, limits, times, &x.seconds));
    while (goes_on && isfinite(x.seconds) && x.n_tried < MOST_TRIED)
        TRY(step(&x, &goes_on));
    return OK;
}
