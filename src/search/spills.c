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
    search_read_room(f, room);
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

/* As search_all; of long programs, one that comes after a plan is given up where it stays behind
 * that. */
static enum status search_spilled(struct search *s, const struct forecast *f,
                                  const struct search_bounds *bounds, const struct fastest *best,
                                  struct decisions *d, struct search_report *report, bool *found)
{
    struct search further = {.w = s->w, /* groups have had their say */
                             .limits = s->limits,
                             .times = s->times,
                             .below = MIN(s->below, best->seconds),
                             .is_patient = true,
                             .spaces = s->spaces};
    const int64_t n_instrs = (int64_t)workload_stage(s->w, STAGE_TRAIN)->program->instrs.n;
    const bool hurries = isfinite(best->seconds) && n_instrs >= LONG_PROGRAM;
    return search_all(hurries ? &further : s, f, bounds, d, report, found);
}

/* With as little on disk as it takes, or what seems faster of a little more. */
static enum status try_spills(struct search *s, const struct forecast *f,
                              const struct search_bounds *bounds,
                              const struct decisions *configured, struct fastest *best)
{
    enum { N_FURTHER = 2 };
    const int n_blocks = workload_stage(s->w, STAGE_TRAIN)->plan.n_blocks;
    int further = 0;
    for (size_t i = 0; i < ARRAY_LEN(spills) && further <= N_FURTHER && !s->gave_up; i++) {
        struct decisions d = *configured;
        struct search_report report = {0};
        bool worthwhile = false, found = false;
        double seconds;
        if (spill(&spills[i], bounds, n_blocks, &d))
            TRY(leaves_room(s, f, &d, &worthwhile));
        if (worthwhile)
            TRY(search_spilled(s, f, bounds, best, &d, &report, &found));
        if (found) {
            TRY(alternative_now(s->w, s->limits, s->times, &seconds));
            TRY(fastest_compare(best, s->w, &d, &report, seconds));
        }
        further += isfinite(best->seconds);
    }
    return OK;
}

enum status search_disk(struct search *s, const struct forecast *f,
                        const struct search_bounds *bounds, struct decisions *d,
                        struct search_report *report, bool *found)
{
    const struct decisions configured = *d;
    struct fastest best = {.seconds = HUGE_VAL};
    bool hopeful;
    TRY(may_fit(s, bounds, d, &hopeful));
    enum status status = hopeful ? try_spills(s, f, bounds, &configured, &best) : OK;
    *found = status == OK && isfinite(best.seconds) && !s->gave_up;
    if (!*found) {
        fastest_release(&best);
        return status;
    }
    fastest_take(&best, s->w, d, report);
    return OK;
}
