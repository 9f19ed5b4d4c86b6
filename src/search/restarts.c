/* restarts.c: searches that are run again with less to choose from. */
#include <math.h>

#include "search/search_internal.h"

/* What a search does without. With less to choose from it goes deeper: what it finds that may not
 * move activations, or not send weights away, or has less room, can be faster than what it finds
 * with all of it. */
struct restriction {
    enum extent without; /* EXTENT_COUNT: nothing, */
    int room_part;       /* but the device is smaller by such a part */
};

static const struct restriction restrictions[] = {
    {.without = EXTENT_MOVED},
    {.without = EXTENT_WEIGHTS},
    {.without = EXTENT_COUNT, .room_part = 32},
};

/* Does it keep a search from anything that *d does, as found from what is configured? */
static bool restricts(const struct restriction *r, const struct search_bounds *bounds,
                      const struct decisions *configured, const struct decisions *d)
{
    enum extent e = r->without;
    return e == EXTENT_COUNT || (d->n[e] > 0 && configured->n[e] == 0 && !bounds->fixed[e]);
}

/* Where it stays behind the best, it is over soon. */
static enum status search_within(struct search *s, const struct forecast *f,
                                 const struct search_bounds *bounds, const struct restriction *r,
                                 const struct decisions *configured, struct fastest *best)
{
    struct space spaces[2] = {0};
    struct search within = {.w = s->w, /* groups have had their say */
                            .limits = s->limits,
                            .times = s->times,
                            .below = MIN(s->below, best->seconds),
                            .is_patient = true,
                            .spaces = spaces};
    struct search_bounds fewer = *bounds;
    struct forecast smaller = *f;
    struct decisions d = *configured;
    struct search_report report = {0};
    bool found;
    if (r->without < EXTENT_COUNT)
        fewer.fixed[r->without] = true;
    if (r->room_part > 0)
        smaller.budget.n_bytes[TIER_DEVICE] -= f->budget.n_bytes[TIER_DEVICE] / r->room_part;
    enum status status = search_all(&within, &smaller, &fewer, &d, &report, &found);
    if (status == OK && found)
        status = fastest_compare(best, s->w, &d, &report, report.findings[0].seconds);
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
        space_release(&spaces[i]);
    return status;
}

/* Searches are compared by the first of their plans, also where another is asked for. */
enum status search_deeper(struct search *s, const struct forecast *f,
                          const struct search_bounds *bounds, const struct decisions *configured,
                          struct decisions *d, struct search_report *report)
{
    const struct decisions first = *d;
    struct fastest best = {.seconds = HUGE_VAL};
    enum status status = OK;
    if (s->gave_up || (int64_t)workload_stage(s->w, STAGE_TRAIN)->program->instrs.n >= LONG_PROGRAM)
        return OK;
    TRY(fastest_compare(&best, s->w, d, report, report->findings[0].seconds));
    for (size_t i = 0; i < ARRAY_LEN(restrictions) && status == OK; i++) {
        if (restricts(&restrictions[i], bounds, configured, &first))
            status = search_within(s, f, bounds, &restrictions[i], configured, &best);
    }
    if (status == OK)
        fastest_take(&best, s->w, d, report);
    else
        fastest_release(&best);
    return status;
}
