#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "base/team.h"
#include "search/alternative.h"
#include "search/search_internal.h"

/* ---- all of it ------------------------------------------------------------------------------- */

/* Searches that differ in what is on disk, or in which homes are theirs to choose, share a space.
 */
static struct space *shared_space(const struct search *s, const struct decisions *base)
{
    return &s->spaces[base->small_bytes == 0];
}

static enum status open_space(struct search *s, const struct decisions *base,
                              const struct search_bounds *bounds, const int64_t room[TIER_COUNT])
{
    struct space *shared = shared_space(s, base);
    if (!shared->work)
        return space_init(&s->space, s->w, s->times, base, bounds, room);
    s->space = *shared;
    *shared = (struct space){0};
    return space_restart(&s->space, base, bounds, room);
}

static void close_space(struct search *s, const struct decisions *base)
{
    *shared_space(s, base) = s->space;
    s->space = (struct space){0};
}

static enum status search_with(struct search *s, const struct decisions *base,
                               const struct search_bounds *bounds, const int64_t room[TIER_COUNT],
                               struct decisions *d, struct search_report *report, bool *found)
{
    *found = false;
    TRY(open_space(s, base, bounds, room));
    s->n_at_hand = s->space.n_instrs; /* a program that keeps everything */
    enum status status = search_make_room(s);
    if (status == OK)
        status = search_look(s, d, found);
    if (status == OK && *found)
        status = search_describe(s, report);
    foresight_rest(s->foresight);
    close_space(s, base);
    return status;
}

/* What is worth a search: large tensors alone, if there are any; and then small ones with them, if
 * they come to more than next to nothing. In a small network none is large, and all is moved that
 * helps. */
struct worth {
    bool large_alone, all;
};

static struct worth find_worth(const struct graph *g, int64_t room)
{
    enum { NEXT_TO_NOTHING = 64 }; /* a part of the room */
    const struct decisions d = {.small_bytes = SMALL_BYTES};
    int64_t n_small = 0;
    bool any_large = false;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        if (decisions_is_large(&d, g, v))
            any_large = true;
        else
            n_small += value_bytes(g, v);
    }
    return (struct worth){any_large, !any_large || n_small >= room / NEXT_TO_NOTHING};
}

enum status search_all(struct search *s, const struct forecast *f,
                       const struct search_bounds *bounds, struct decisions *d,
                       struct search_report *report, bool *found)
{
    const struct stage *stage = workload_stage(s->w, STAGE_TRAIN);
    const struct decisions configured = *d;
    int64_t room[TIER_COUNT];
    forecast_room(f, room);
    s->recorded_bytes = f->recorded_bytes;
    *found = false;
    if (!stage)
        return OK;
    const struct worth worth = find_worth(stage->graph, room[TIER_DEVICE]);
    for (int small = 1; small >= 0 && !*found && !s->gave_up; small--) {
        struct decisions base = configured;
        base.small_bytes = small * SMALL_BYTES;
        if (small ? !worth.large_alone : !worth.all)
            continue;
        *s = (struct search){.w = s->w,
                             .limits = s->limits,
                             .times = s->times,
                             .below = s->below,
                             .is_patient = s->is_patient,
                             .is_hasty = s->is_hasty,
                             .groups = s->groups,
                             .known = s->known,
                             .foresight = s->foresight,
                             .spaces = s->spaces,
                             .recorded_bytes = s->recorded_bytes,
                             .n_instrs = s->n_instrs};
        TRY(search_with(s, &base, bounds, room, d, report, found));
    }
    return OK;
}

/* Nothing trains: weights are all that can leave. */
static enum status plan_use(struct search *s, const struct search_bounds *bounds,
                            struct decisions *d)
{
    struct forecast f = {0};
    TRY(search_least(s->w, s->limits, bounds, d));
    forecast_memory(&f, s->w, s->limits);
    return f.fits && decisions_copy(d) ? search_choose_ring(s->w, s->limits, s->times, d) : OK;
}

/* *d, and how much of the memories it takes; with addresses too where it seems to fit. */
static enum status measure(struct search *s, const struct decisions *d, struct forecast *f)
{
    *f = (struct forecast){0};
    TRY(workload_decide(s->w, d));
    TRY(workload_bound(s->w));
    forecast_memory(f, s->w, s->limits);
    if (!f->fits)
        return OK;
    TRY(workload_place(s->w));
    forecast_memory(f, s->w, s->limits);
    return OK;
}

/* Where slices of gradients fit, the largest that do: a kernel over few elements ends as it begins,
 * with a part of the device. */
static enum status widen_slices(struct search *s, struct decisions *d, struct forecast *f)
{
    enum { WIDEST = 16 };
    for (int64_t times = WIDEST; times > 1; times /= 2) {
        struct decisions wider = *d;
        wider.slice_bytes *= times;
        TRY(measure(s, &wider, f));
        if (!f->fits)
            continue;
        *d = wider;
        return OK;
    }
    return measure(s, d, f);
}

/* Is any gradient made in slices, as the plans are? */
static bool any_formed(const struct workload *w)
{
    for (int i = 0; i < w->n_stages; i++) {
        const struct stage *s = &w->stages[i];
        for (value_id v = 0; (size_t)v < s->graph->values.n; v++) {
            if (s->plan.treat[v] == FORM)
                return true;
        }
    }
    return false;
}

/* What does not fit may do so when large gradients are never whole, or small ones neither. That
 * takes a little time, and no link: where it saves more than a little it comes before everything
 * else. */
static enum status form_gradients(struct search *s, struct decisions *d, struct forecast *f)
{
    enum { WORTH = 64 }; /* a part in so many of what the step takes */
    static const int64_t larger_than[] = {SMALL_BYTES, 1};
    const struct decisions configured = *d;
    struct forecast best = *f;
    int64_t least = s->w->n_bytes[TIER_DEVICE], worth = least / WORTH;
    for (size_t i = 0; i < ARRAY_LEN(larger_than) && !f->fits; i++) {
        struct decisions formed = configured;
        formed.form_bytes = larger_than[i];
        TRY(workload_decide(s->w, &formed));
        if (!any_formed(s->w))
            continue; /* the same programs */
        TRY(measure(s, &formed, f));
        if (!f->fits && s->w->n_bytes[TIER_DEVICE] > least - worth)
            continue;
        least = s->w->n_bytes[TIER_DEVICE];
        *d = formed;
        best = *f;
    }
    if (!f->fits) {
        *f = best;
        return OK;
    }
    return decisions_copy(d) ? OK : widen_slices(s, d, f);
}

/* ---- room to spare --------------------------------------------------------------------------- */

/* What costs next to nothing to make again costs something still: where it fits, it is kept for a
 * step that is shorter by this part, and memory is left alone for less. */
#define WORTH_KEEPING 0.01

/* Is a step below `worth` seconds with all of it kept, or where that does not fit with what the
 * search says? The workload gets what was tried last. */
static enum status keep_more(struct search *s, const struct search_bounds *bounds, double worth,
                             struct decisions *d, struct search_report *report, bool *taken)
{
    struct forecast f;
    struct decisions kept = *d;
    double seconds;
    *taken = false;
    kept.recompute_cheap = false;
    TRY(measure(s, &kept, &f));
    TRY(forecast_seconds(s->w, s->times, &seconds));
    bool found = f.fits;
    if (!f.fits && seconds < worth) {
        kept = *d;
        TRY(search_all(s, &f, bounds, &kept, report, &found));
        if (found)
            TRY(alternative_now(s->w, s->limits, s->times, &seconds));
    }
    *taken = found && seconds < worth;
    if (*taken)
        *d = kept;
    else
        *report = (struct search_report){0};
    return OK;
}

/* *d fits. What it copies is fetched as far ahead as that helps, and what it makes again for next
 * to nothing is kept where there is room and that helps. */
static enum status spend_room(struct search *s, const struct search_bounds *bounds,
                              struct decisions *d, struct search_report *report)
{
    struct set_aside before;
    double seconds;
    bool taken = false;
    if (decisions_copy(d) || s->w->device->ops->queue)
        TRY(search_choose_ring(s->w, s->limits, s->times, d));
    if (!workload_stage(s->w, STAGE_TRAIN) || !d->recompute_cheap ||
        bounds->fixed[EXTENT_RECOMPUTED])
        return OK;
    TRY(alternative_now(s->w, s->limits, s->times, &seconds));
    s->groups = NULL; /* nothing has to leave */
    TRY(workload_set_aside(s->w, &before));
    enum status status = keep_more(s, bounds, (1 - WORTH_KEEPING) * seconds, d, report, &taken);
    if (taken)
        set_aside_release(&before);
    else
        workload_bring_back(s->w, &before);
    return status;
}

/* *d, if it fits; or what a search finds; or the least. */
static enum status plan_with(struct search *s, const struct group_search *x, struct decisions *d,
                             struct search_report *report, bool *found)
{
    struct forecast f;
    TRY(measure(s, d, &f));
    if (budget_over(&f.budget) == TIER_DEVICE && workload_stage(s->w, STAGE_TRAIN))
        TRY(form_gradients(s, d, &f));
    *found = f.fits;
    if (f.fits)
        return spend_room(s, x->bounds, d, report);
    const struct decisions configured = *d;
    if (!workload_stage(s->w, STAGE_TRAIN))
        return plan_use(s, x->bounds, d);
    TRY(search_all(s, &f, x->bounds, d, report, found));
    if (*found)
        return search_deeper(s, &f, x->bounds, &configured, d, report);
    if (!s->gave_up) {
        *d = configured;
        TRY(search_disk(s, &f, x->bounds, d, report, found));
    }
    if (*found || s->gave_up)
        return OK;
    *d = configured;
    f = (struct forecast){0};
    if (s->below < HUGE_VAL)
        TRY(search_least(s->w, s->limits, x->bounds, d)); /* it has to be fast, too */
    else
        TRY(search_smallest(s->w, s->limits, x->bounds, d));
    forecast_memory(&f, s->w, s->limits);
    *found = f.fits;
    return OK;
}

/* With the group that *d has; where that is one micro-batch and `groups` win, nothing is found. */
static enum status plan_against(const struct group_search *x, double below, struct grouping *groups,
                                struct decisions *d, struct search_report *report, bool *found)
{
    struct space spaces[2] = {0};
    struct search s = {.w = x->w,
                       .limits = x->limits,
                       .times = x->times,
                       .below = below,
                       .groups = groups,
                       .known = x->known,
                       .foresight = x->foresight,
                       .spaces = spaces};
    enum status status = plan_with(&s, x, d, report, found);
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
        space_release(&spaces[i]);
    return status;
}

static enum status plan_group(const struct group_search *x, double below, struct decisions *d,
                              struct search_report *report, bool *found)
{
    return plan_against(x, below, NULL, d, report, found);
}

static enum status plan_with_groups(const struct group_search *x, struct decisions *d,
                                    struct search_report *report)
{
    const struct decisions configured = *d;
    const struct stage *trains = workload_stage(x->w, STAGE_TRAIN);
    const bool may_group = trains && trains->n_micro > 1 && !x->bounds->fixed_group;
    struct grouping groups = {.search = x, .configured = &configured};
    bool found; /* or what takes the least, for whoever says so */
    TRY(plan_against(x, HUGE_VAL, may_group ? &groups : NULL, d, report, &found));
    if (!groups.won && !found && groups.seconds > 0)
        TRY(grouping_take(&groups)); /* without them it was given up */
    else if (!groups.won)
        TRY(grouping_try(&groups, d, true));
    if (!groups.won)
        return OK;
    *d = groups.d;
    *report = groups.report;
    return OK;
}

/* Is there enough to share out for threads to be worth beginning? A search in a few short programs
 * is over before. */
static struct team *begin_team(const struct workload *w)
{
    enum { FEW_NODES = 500 };
    const struct stage *trains = workload_stage(w, STAGE_TRAIN);
    struct team *team = NULL;
    if (!trains || trains->graph->nodes.n < FEW_NODES || usable_processors() < SEARCH_THREADS ||
        team_new(&team, SEARCH_THREADS) != OK)
        return NULL; /* then it takes longer */
    return team;
}

/* Where memory is one, what another thread's programs take would be missing in the budget. */
static struct foresight *begin_foresight(const struct workload *w)
{
    struct foresight *f = NULL;
    bool may = w->team && w->device->ops->memory_is_apart;
    return may && foresight_new(&f, w) == OK ? f : NULL; /* then it takes longer */
}

/* As if the host had room for everything: where that fits what it has, there is no faster plan, and
 * a search that has to heed two limits may not come upon it. */
static enum status plan_for_any_host(const struct group_search *within, struct decisions *d,
                                     struct search_report *report, bool *fits)
{
    struct group_search x = *within;
    struct limits open = *within->limits;
    struct forecast f = {0};
    open.n_bytes[TIER_HOST] = INT64_MAX / 4;
    x.limits = &open;
    TRY(plan_with_groups(&x, d, report));
    forecast_memory(&f, x.w, within->limits);
    *fits = f.fits;
    return OK;
}

/* Where programs are not short one search takes all the time that there is; and with a disk the
 * host is full. */
static enum status is_worth_two(const struct group_search *x, const struct decisions *d, bool *is)
{
    enum { SHORT = 3000 /* instructions of a step */ };
    *is = false;
    if (x->limits->n_bytes[TIER_HOST] == LIMIT_OPEN || x->w->device->disk ||
        !workload_stage(x->w, STAGE_TRAIN))
        return OK;
    TRY(workload_decide(x->w, d));
    TRY(workload_bound(x->w));
    const struct stage *s = workload_stage(x->w, STAGE_TRAIN);
    *is = (int64_t)s->program->instrs.n * s->n_micro < SHORT;
    return OK;
}

static enum status plan_within(const struct group_search *x, struct decisions *d,
                               struct search_report *report)
{
    const struct decisions configured = *d;
    bool may = false, fits = false;
    TRY(is_worth_two(x, d, &may));
    if (may)
        TRY(plan_for_any_host(x, d, report, &fits));
    if (fits)
        return OK;
    *d = configured;
    *report = (struct search_report){0};
    return plan_with_groups(x, d, report);
}

enum status search_plan(struct workload *w, const struct limits *limits,
                        const struct search_bounds *bounds, const struct kernel_times *times,
                        struct decisions *d, struct search_report *report)
{
    struct search_report ignored = {0};
    struct known known;
    struct group_search x = {.w = w,
                             .limits = limits,
                             .bounds = bounds,
                             .times = times,
                             .known = &known,
                             .plan = plan_group};
    mem_hold_begin();
    known_init(&known);
    w->team = begin_team(w);
    x.foresight = begin_foresight(w);
    enum status status = plan_within(&x, d, report ? report : &ignored);
    foresight_free(x.foresight);
    team_free(w->team);
    w->team = NULL;
    known_release(&known);
    mem_hold_end();
    return status;
}
