/* least.c: the plan that takes the least of the device's memory, by trying what could be it. */
#include <string.h>

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

/* Quarters of the blocks whose part leaves, and of those that have it on disk instead of on the
 * host. What the disk has no room for is on the host, or does not leave. */
static const struct share {
    int leaves, to_disk;
} shares[] = {{4, 0}, {4, 4}, {4, 2}, {2, 4}};

static int quarters_of(int n_blocks, int quarters)
{
    return quarters == 4 ? EXTENT_WHOLE : n_blocks * quarters / 4;
}

/* What is not trained has weights alone; what is made again goes nowhere. */
static struct decisions with(const struct workload *w, const struct decisions *d,
                             const struct search_bounds *bounds, unsigned way,
                             const struct share *share)
{
    const struct stage *trains = workload_stage(w, STAGE_TRAIN);
    const int n_blocks = w->stages[0].plan.n_blocks;
    struct decisions more = *d;
    for (int e = 0; e < EXTENT_COUNT; e++) {
        if (!(way & BIT(e)) || bounds->fixed[e] || (!trains && e != EXTENT_WEIGHTS))
            continue;
        more.n[e] = e == EXTENT_RECOMPUTED ? EXTENT_WHOLE : quarters_of(n_blocks, share->leaves);
        more.disk[e] = share->to_disk ? quarters_of(n_blocks, share->to_disk) : d->disk[e];
    }
    return more;
}

/* What was tried, and what it needs of each tier. */
struct trial_list {
    struct {
        struct decisions d;
        int64_t device_bytes, needs[TIER_COUNT];
    } items[1 + ARRAY_LEN(ways) * ARRAY_LEN(shares)];
    int n;
};

static enum status measure(struct workload *w, const struct limits *limits,
                           const struct decisions *d, struct trial_list *list, bool *lacks)
{
    struct forecast f = {0};
    TRY(workload_decide(w, d));
    TRY(workload_bound(w));
    forecast_memory(&f, w, limits);
    *lacks = !budget_holds_beside(&f.budget);
    list->items[list->n].d = *d;
    list->items[list->n].device_bytes = w->n_bytes[TIER_DEVICE];
    memcpy(list->items[list->n].needs, f.budget.needs, sizeof(f.budget.needs));
    list->n++;
    return OK;
}

/* What is configured, then the ways; those that fit the other tiers with one share are not tried
 * with the next. */
static enum status measure_all(struct workload *w, const struct limits *limits,
                               const struct search_bounds *bounds, const struct decisions *d,
                               struct trial_list *list)
{
    const size_t n_shares = w->device->disk ? ARRAY_LEN(shares) : 1;
    unsigned held = 0;
    bool lacks;
    TRY(measure(w, limits, d, list, &lacks));
    for (size_t k = 0; k < n_shares * ARRAY_LEN(ways); k++) {
        const size_t way = k % ARRAY_LEN(ways);
        if (held & BIT(way))
            continue;
        struct decisions more = with(w, d, bounds, ways[way], &shares[k / ARRAY_LEN(ways)]);
        TRY(measure(w, limits, &more, list, &lacks));
        held |= lacks ? 0 : BIT(way);
    }
    return OK;
}

/* Where addresses take so much more than bytes. Without a disk what is configured may be it,
 * whatever the host lacks. */
static int find_smallest(const struct trial_list *list, const struct workload *w,
                         const struct budget *budget, const int64_t gaps[TIER_COUNT])
{
    int found = w->device->disk ? -1 : 0;
    for (int i = 0; i < list->n; i++) {
        struct budget b = *budget;
        for (int t = 0; t < TIER_COUNT; t++)
            b.needs[t] = list->items[i].needs[t] + gaps[t];
        if (!budget_holds_beside(&b))
            continue;
        if (found < 0 || list->items[i].device_bytes < list->items[found].device_bytes)
            found = i;
    }
    return MAX(found, 0);
}

/* Places the smallest. Where its addresses take more of another tier than there is, one is taken
 * that leaves so much. */
static enum status find_least(struct workload *w, const struct limits *limits,
                              const struct search_bounds *bounds, struct decisions *d)
{
    struct trial_list list = {0};
    int64_t gaps[TIER_COUNT] = {0};
    struct forecast f = {0};
    TRY(measure_all(w, limits, bounds, d, &list));
    forecast_memory(&f, w, limits);
    for (int last = -1;;) {
        const int i = find_smallest(&list, w, &f.budget, gaps);
        if (i == last)
            return OK;
        last = i;
        *d = list.items[i].d;
        TRY(workload_decide(w, d));
        TRY(workload_place(w));
        forecast_memory(&f, w, limits);
        if (budget_holds_beside(&f.budget))
            return OK;
        for (int t = TIER_HOST; t < TIER_COUNT; t++)
            gaps[t] = MAX(gaps[t], f.budget.needs[t] - list.items[i].needs[t]);
    }
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
