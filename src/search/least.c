/* least.c: the plan that takes the least of the device's memory, by trying what could be it. */
#include "search/search.h"

#define BIT(e) (1u << (e))

/* Extents that are as large as they can be: each of these can be the least, as what is fetched or
 * made again has to be somewhere while it is used. */
static const unsigned ways[] = {
    BIT(EXTENT_MOVED),
    BIT(EXTENT_RECOMPUTED),
    BIT(EXTENT_MOVED) | BIT(EXTENT_RECOMPUTED),
    BIT(EXTENT_STATES),
    BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES),
    BIT(EXTENT_MOVED) | BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES),
    BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES) | BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_MOVED) | BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES) | BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_RECOMPUTED) | BIT(EXTENT_STATES) | BIT(EXTENT_GRADIENTS) | BIT(EXTENT_WEIGHTS),
    BIT(EXTENT_COUNT) - 1,
};

/* What is not trained has weights alone. */
static struct decisions with(const struct workload *w, const struct decisions *d,
                             const struct search_bounds *bounds, unsigned way, bool on_disk)
{
    const bool trains = workload_stage(w, STAGE_TRAIN) != NULL;
    struct decisions more = *d;
    for (int e = 0; e < EXTENT_COUNT; e++) {
        if (!(way & BIT(e)) || bounds->fixed[e] || (!trains && e != EXTENT_WEIGHTS))
            continue;
        more.n[e] = EXTENT_WHOLE;
        if (on_disk)
            more.disk[e] = EXTENT_WHOLE;
    }
    return more;
}

static enum status measure(struct workload *w, const struct limits *limits,
                           const struct decisions *d, bool *lacks_other)
{
    struct forecast f = {0};
    TRY(workload_decide(w, d));
    TRY(workload_bound(w));
    forecast_memory(&f, w, limits);
    *lacks_other = false;
    for (int t = TIER_HOST; t < TIER_COUNT; t++)
        *lacks_other |= f.budget.needs[t] > f.budget.n_bytes[t];
    return OK;
}

static enum status find_least(struct workload *w, const struct limits *limits,
                              const struct search_bounds *bounds, struct decisions *d)
{
    const struct decisions configured = *d;
    const size_t n_ways = ARRAY_LEN(ways) * (w->device->disk ? 2 : 1); /* to the host first */
    bool lacks_other;
    unsigned held = 0; /* ways whose part the host has room for: on disk they take no less */
    TRY(measure(w, limits, d, &lacks_other));
    int64_t least = lacks_other && w->device->disk ? INT64_MAX : w->n_bytes[TIER_DEVICE];
    for (size_t i = 0; i < n_ways; i++) {
        unsigned way = BIT(i % ARRAY_LEN(ways));
        if (held & way)
            continue;
        struct decisions more =
            with(w, &configured, bounds, ways[i % ARRAY_LEN(ways)], i >= ARRAY_LEN(ways));
        TRY(measure(w, limits, &more, &lacks_other));
        held |= lacks_other ? 0 : way;
        if (w->n_bytes[TIER_DEVICE] < least && !lacks_other) {
            least = w->n_bytes[TIER_DEVICE];
            *d = more;
        }
    }
    TRY(workload_decide(w, d));
    return workload_place(w);
}

enum status search_least(struct workload *w, const struct limits *limits,
                         const struct search_bounds *bounds, struct decisions *d)
{
    const struct surroundings *before = w->around;
    struct surroundings now;
    if (!before) {
        surroundings_read(&now, w->device);
        w->around = &now;
    }
    enum status status = find_least(w, limits, bounds, d);
    w->around = before;
    return status;
}
