/* spills.c: what goes to disk when device and host are full. */
#include <math.h>

#include "search/alternative.h"
#include "search/search_internal.h"

/* What goes there when the host is full: states first, which cross once in a step, alone or with
 * activations: these are written in the forward pass, where nothing else needs the disk, and leave
 * the host to states; then what crosses more often. Shares are of the blocks, in quarters. */
static const struct spill {
    int quarters[EXTENT_COUNT];
} spills[] = {
    {{[EXTENT_STATES] = 1}},
    {{[EXTENT_STATES] = 1, [EXTENT_MOVED] = 2}},
    {{[EXTENT_STATES] = 2}},
    {{[EXTENT_STATES] = 2, [EXTENT_MOVED] = 2}},
    {{[EXTENT_STATES] = 3}},
    {{[EXTENT_STATES] = 3, [EXTENT_MOVED] = 2}},
    {{[EXTENT_STATES] = 4}},
    {{[EXTENT_STATES] = 4, [EXTENT_MOVED] = 2}},
    {{[EXTENT_STATES] = 4, [EXTENT_GRADIENTS] = 4}},
    {{[EXTENT_STATES] = 4, [EXTENT_WEIGHTS] = 2}},
    {{[EXTENT_STATES] = 4, [EXTENT_WEIGHTS] = 4}},
    {{[EXTENT_STATES] = 4, [EXTENT_GRADIENTS] = 4, [EXTENT_WEIGHTS] = 4}},
    {{[EXTENT_STATES] = 4, [EXTENT_GRADIENTS] = 4, [EXTENT_WEIGHTS] = 4, [EXTENT_MOVED] = 4}},
};

/* *d with that much on disk; false: the config has said all there is to say about it. */
static bool spill(const struct spill *x, const struct search_bounds *bounds, int n_blocks,
                  struct decisions *d)
{
    bool changes = false;
    for (int e = 0; e < EXTENT_COUNT; e++) {
        int n = x->quarters[e] == 4 ? EXTENT_WHOLE : (n_blocks * x->quarters[e] + 3) / 4;
        if (bounds->fixed[e] || n <= d->disk[e])
            continue;
        d->disk[e] = n;
        changes = true;
    }
    return changes;
}

/* Can device and host hold what does not go there? What lives outside the passes is known before
 * anything is searched for. */
static enum status leaves_room(struct search *s, const struct forecast *f,
                               const struct decisions *d, bool *out)
{
    struct decisions away = *d;
    int64_t room[TIER_COUNT];
    forecast_room(f, room);
    for (int e = 0; e < EXTENT_COUNT; e++) {
        if (d->disk[e] > 0)
            away.n[e] = EXTENT_WHOLE;
    }
    TRY(workload_decide(s->w, &away));
    TRY(workload_bound(s->w));
    const int64_t *n_bytes = s->w->storage.n_bytes;
    *out = n_bytes[TIER_DEVICE] + n_bytes[TIER_HOST] <= room[TIER_DEVICE] + room[TIER_HOST];
    return OK;
}

/* Does the device hold what passes need when everything leaves that may, were there room for all of
 * it elsewhere? How much stays is then the search's. */
static enum status may_fit(struct search *s, const struct search_bounds *bounds,
                           const struct decisions *configured, bool *out)
{
    struct decisions least = *configured;
    struct limits roomy = *s->limits;
    struct forecast f = {0};
    *out = false;
    if (!s->w->device->disk)
        return OK;
    roomy.n_bytes[TIER_HOST] = roomy.n_bytes[TIER_DISK] = INT64_MAX / 4;
    TRY(search_least(s->w, &roomy, bounds, &least));
    forecast_memory(&f, s->w, &roomy);
    *out = f.fits;
    return OK;
}

/* The spills of a search, and the best plan so far. */
struct spilling {
    struct search *s;
    const struct forecast *f;
    const struct search_bounds *bounds;
    const struct decisions *configured;
    struct fastest best;
    const struct spill *with; /* the best has it */
};

/* A search with that much on disk; of long programs, and once more of any, it is given up where it
 * stays behind the best. */
static enum status search_spilled(struct spilling *x, const struct forecast *f,
                                  const struct spill *with, bool is_again)
{
    struct search *s = x->s;
    struct search further = {.w = s->w, /* groups have had their say */
                             .limits = s->limits,
                             .times = s->times,
                             .below = MIN(s->below, x->best.seconds),
                             .is_patient = true,
                             .is_hasty = true,
                             .known = s->known,
                             .foresight = s->foresight,
                             .spaces = s->spaces};
    const struct stage *stage = workload_stage(s->w, STAGE_TRAIN);
    struct decisions d = *x->configured;
    struct search_report report = {0};
    bool worthwhile = false, found;
    double seconds, before = x->best.seconds;
    if (spill(with, x->bounds, stage->plan.n_blocks, &d))
        TRY(leaves_room(s, f, &d, &worthwhile));
    if (!worthwhile)
        return OK;
    const bool is_long = (int64_t)stage->program->instrs.n >= LONG_PROGRAM;
    const bool hurries = is_again || (isfinite(before) && is_long);
    TRY(search_all(hurries ? &further : s, f, x->bounds, &d, &report, &found));
    if (!found)
        return OK;
    TRY(alternative_now(s->w, s->limits, s->times, &seconds));
    TRY(fastest_compare(&x->best, s->w, &d, &report, seconds));
    if (x->best.seconds < before)
        x->with = with;
    return OK;
}

/* With as little on disk as it takes, or what seems faster of a little more. Hastily: where nothing
 * is near to fitting, more goes there. */
static enum status try_spills(struct spilling *x, bool hastily)
{
    enum { N_FURTHER = 2 };
    int further = 0;
    x->s->is_hasty = hastily;
    for (size_t i = 0; i < ARRAY_LEN(spills) && further <= N_FURTHER && !x->s->gave_up; i++) {
        TRY(search_spilled(x, x->f, &spills[i], false));
        further += isfinite(x->best.seconds);
    }
    x->s->is_hasty = false;
    return OK;
}

/* What is best has much to do with which tensors the host has room for: with a little less of it
 * another choice is made, that may be better. */
static enum status try_smaller_hosts(struct spilling *x)
{
    static const int parts[] = {32, 16};
    for (size_t i = 0; i < ARRAY_LEN(parts) && x->with && !x->s->gave_up; i++) {
        struct forecast smaller = *x->f;
        int64_t *room = &smaller.budget.n_bytes[TIER_HOST];
        if (*room == INT64_MAX)
            return OK;
        *room -= *room / parts[i];
        TRY(search_spilled(x, &smaller, x->with, true));
    }
    return OK;
}

enum status search_disk(struct search *s, const struct forecast *f,
                        const struct search_bounds *bounds, struct decisions *d,
                        struct search_report *report, bool *found)
{
    const struct decisions configured = *d;
    struct spilling x = {
        .s = s, .f = f, .bounds = bounds, .configured = &configured, .best.seconds = HUGE_VAL};
    bool hopeful;
    TRY(may_fit(s, bounds, d, &hopeful));
    enum status status = hopeful ? try_spills(&x, true) : OK;
    if (status == OK && hopeful && !x.with && !s->gave_up && s->below == HUGE_VAL)
        status = try_spills(&x, false);
    if (status == OK)
        status = try_smaller_hosts(&x);
    *found = status == OK && isfinite(x.best.seconds) && !s->gave_up;
    if (!*found) {
        fastest_release(&x.best);
        return status;
    }
    fastest_take(&x.best, s->w, d, report);
    return OK;
}
