/* below.c: the least that a step can do with, where it is more than there is. */
#include <math.h>
#include <string.h>

#include "search/search_internal.h"

/* Rates that no machine has, and every machine can go by: what takes the least does not depend on
 * how fast things are, but which plans a search comes upon would. Copies cost little beside
 * products, as what is moved needs less room than what is made again. */
static void make_even(struct device_rates *r)
{
    static const struct link_rate link = {.alone = 1e12, .both = 1e12, .latency_s = 1e-6};
    r->matmul_flops = r->half_matmul_flops = 1e10;
    r->memory_bytes = 1e11;
    r->launch_s = r->wait_s = 1e-6;
    for (int from = 0; from < TIER_COUNT; from++) {
        for (int to = 0; to < TIER_COUNT; to++) {
            if (r->links[from][to].alone > 0)
                r->links[from][to] = link;
        }
    }
}

static enum status descend(struct search *s, const struct decisions *configured,
                           const struct search_bounds *bounds, const int64_t room[TIER_COUNT],
                           struct decisions *d, bool *found)
{
    struct trial smallest = {0};
    TRY(space_init(&s->space, s->w, NULL, configured, bounds, room));
    enum status status = search_make_room(s);
    if (status == OK)
        status = search_make_trial(s, &smallest);
    if (status == OK)
        status = search_descend(s, &smallest, found);
    if (status == OK && *found)
        status = search_take(s, &smallest, d);
    space_release(&s->space);
    return status;
}

static enum status place(struct workload *w, const struct decisions *d)
{
    TRY(workload_decide(w, d));
    return workload_place(w);
}

/* *d: what search_least gives, placed; then what a search by blocks finds below that. Of the
 * budgets those of the host and of the disk count. */
static enum status go_below(struct workload *w, const struct limits *limits,
                            const struct search_bounds *bounds, const struct decisions *configured,
                            struct decisions *d)
{
    struct device *const device = w->device;
    struct device even = *device;
    struct search s = {
        .w = w, .limits = limits, .below = HUGE_VAL, .is_hasty = decisions_use_disk(d)};
    struct forecast f = {0};
    const int64_t least = w->n_bytes[TIER_DEVICE];
    int64_t room[TIER_COUNT];
    struct decisions below = *d, from = *configured;
    bool found = false;
    memcpy(from.disk, d->disk, sizeof(from.disk));
    forecast_memory(&f, w, limits);
    forecast_room(&f, room);
    room[TIER_DEVICE] = least;
    s.recorded_bytes = f.recorded_bytes;
    make_even(&even.rates);
    w->device = &even;
    enum status status = descend(&s, &from, bounds, room, &below, &found);
    w->device = device;
    if (status == OK && found)
        status = place(w, &below);
    forecast_memory(&f, w, limits);
    found = found && w->n_bytes[TIER_DEVICE] < least && budget_holds_beside(&f.budget);
    if (found)
        *d = below;
    return status == OK && !found ? place(w, d) : status;
}

enum status search_smallest(struct workload *w, const struct limits *limits,
                            const struct search_bounds *bounds, struct decisions *d)
{
    const struct decisions configured = *d;
    TRY(search_least(w, limits, bounds, d));
    return workload_stage(w, STAGE_TRAIN) ? go_below(w, limits, bounds, &configured, d) : OK;
}

bool search_is_quick(const struct workload *w)
{
    const struct stage *trains = workload_stage(w, STAGE_TRAIN);
    return !trains || (int64_t)trains->program->instrs.n < LONG_PROGRAM;
}
