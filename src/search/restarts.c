/* restarts.c: searches that are run again with less to choose from, and the plans of them all.
 *
 * With less to choose from a search goes deeper: what it finds that may not move activations, or
 * not send weights away, or has less room, can be faster than what it finds with all of it. And
 * where it is not, it is another way of running the step, that a clock may like better.
 */
#include <math.h>

#include "search/likeness.h"
#include "search/search_internal.h"

struct restriction {
    bool without[EXTENT_COUNT];
    int room_part; /* the device is smaller by such a part; 0: it is not */
};

/* The first search has none. Those come first that find the most in the least time: the others are
 * then given up the sooner, or not begun. */
static const struct restriction restrictions[] = {
    {.room_part = 0},
    {.without = {[EXTENT_WEIGHTS] = true}},
    {.without = {[EXTENT_STATES] = true, [EXTENT_WEIGHTS] = true}},
    {.without = {[EXTENT_MOVED] = true}},
    {.without = {[EXTENT_WEIGHTS] = true}, .room_part = 32},
    {.without = {[EXTENT_MOVED] = true, [EXTENT_WEIGHTS] = true}},
    {.room_part = 32},
    {.room_part = 16},
    {.without = {[EXTENT_MOVED] = true, [EXTENT_GRADIENTS] = true}},
};

enum {
    N_SEARCHES = ARRAY_LEN(restrictions),
    MOST_WORK = 11000 * 1000, /* in all, after which no more is begun */
    SHORT_PROGRAM = 5500,     /* instructions */
    COMPARISONS = 64,         /* of layouts, that take as long as emitting an instruction */
};

/* Of a step's time: plans that are unlike and closer are told apart by a clock alone, so one that
 * is behind by less is listed too. */
static const double CLOSE = 0.01;
static const double SAME = 1e-6; /* plans that no clock could tell apart: one of them is listed */

/* A plan by its place among those of a search. */
struct place_in {
    int search, rank;
};

/* Of all searches, with what the first has found from what is configured. */
struct restarts {
    struct search *s;
    const struct forecast *f;
    const struct search_bounds *bounds;
    const struct decisions *configured;
    bool has_gradients;      /* that could be elsewhere */
    struct space unmoved[2]; /* of searches that move no activations, as the first one's spaces */
    struct search_report reports[N_SEARCHES]; /* without findings: it was given up */
    double below[N_SEARCHES];                 /* seconds: what they were to be faster than */
    struct search_report merged;
    int64_t work;                         /* of them */
    int64_t most_work;                    /* what that may come to, for another to begin */
    struct place_in places[MAX_FINDINGS]; /* of the merged */
};

/* What a search took, in instructions emitted: an estimate takes about as long as one for each
 * place. */
static int64_t work_of(const struct search *s)
{
    const struct stage *stage = workload_stage(s->w, STAGE_TRAIN);
    return s->n_instrs + (int64_t)s->n_ranked * (stage->plan.n_blocks + 2) +
           s->layout_work / COMPARISONS;
}

/* Several micro-batches are searched for in groups too, which of programs that are not short takes
 * half of the time that there is, and of long ones most of it. */
static int64_t most_work(const struct stage *s)
{
    const size_t n_instrs = s->program->instrs.n;
    if (s->n_micro == 1 || n_instrs < SHORT_PROGRAM)
        return MOST_WORK;
    return n_instrs < LONG_PROGRAM ? MOST_WORK / 2 : MOST_WORK / 4;
}

/* ---- one of them ----------------------------------------------------------------------------- */

/* Are there gradients that could be elsewhere? */
static bool has_gradients(const struct search *s)
{
    return space_class_bytes(&s->spaces[0], HOME_GRADIENTS) > 0 ||
           space_class_bytes(&s->spaces[1], HOME_GRADIENTS) > 0;
}

/* Is all that it names left to the search? What is not sent away by the best plan so far may well
 * be by all that the search has looked at. */
static bool restricts(const struct restarts *x, const struct restriction *r)
{
    bool does = !r->without[EXTENT_GRADIENTS] || x->has_gradients;
    for (int e = 0; e < EXTENT_COUNT; e++)
        does &= !r->without[e] || (x->configured->n[e] == 0 && !x->bounds->fixed[e]);
    return does;
}

/* The plan of that rank; a search that stays behind is over soon. */
static enum status search_within(struct restarts *x, struct place_in at, struct decisions *d,
                                 bool *found)
{
    const struct restriction *r = &restrictions[at.search];
    struct search within = {.w = x->s->w, /* groups have had their say */
                            .limits = x->s->limits,
                            .times = x->s->times,
                            .below = x->below[at.search],
                            .is_patient = true,
                            .known = x->s->known,
                            .foresight = x->s->foresight,
                            .spaces = r->without[EXTENT_MOVED] ? x->unmoved : x->s->spaces};
    struct search_bounds fewer = *x->bounds;
    struct forecast smaller = *x->f;
    int64_t *room = &smaller.budget.n_bytes[TIER_DEVICE];
    *d = *x->configured;
    fewer.rank = at.rank;
    for (int e = 0; e < EXTENT_COUNT; e++)
        fewer.fixed[e] |= r->without[e];
    if (r->room_part > 0)
        *room -= *room / r->room_part;
    enum status status = search_all(&within, &smaller, &fewer, d, &x->reports[at.search], found);
    if (!*found)
        x->reports[at.search].n_findings = 0;
    x->work += work_of(&within);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The fastest that is not behind its search's next[]; of those that no clock could tell apart the
 * one of the earlier search. NULL: there is none. */
static const struct finding *find_next(const struct restarts *x, const int next[N_SEARCHES],
                                       int *i_search)
{
    const struct finding *best = NULL;
    for (int i = 0; i < N_SEARCHES; i++) {
        const struct finding *f = &x->reports[i].findings[next[i]];
        if (next[i] < x->reports[i].n_findings &&
            (!best || f->seconds < (1 - SAME) * best->seconds)) {
            best = f;
            *i_search = i;
        }
    }
    return best;
}

/* Of its kind the chosen one is listed (NULL: none is yet), and no other but the fastest of all. */
static bool stands_for(const struct finding *chosen, const struct finding *f,
                       const struct search_report *r)
{
    return chosen && r->n_findings > 0 && decisions_are_alike(&chosen->decisions, &f->decisions);
}

/* One of each kind, the fastest; and the one that is chosen, in any case. */
static void merge(struct restarts *x, const struct finding *chosen)
{
    struct search_report *r = &x->merged;
    int next[N_SEARCHES] = {0}, i = 0;
    const struct finding *f;
    *r = (struct search_report){.chosen = -1};
    while ((f = find_next(x, next, &i)) != NULL) {
        next[i]++;
        bool is_chosen = f == chosen;
        if (!is_chosen &&
            (stands_for(chosen, f, r) || !search_is_runner_up(r, f->seconds, &f->decisions)))
            continue;
        int at = MIN(r->n_findings, MAX_FINDINGS - 1);
        r->findings[at] = *f;
        x->places[at] = (struct place_in){i, next[i]};
        r->n_findings = at + 1;
        r->chosen = is_chosen ? at : r->chosen;
    }
    for (i = 0; i < N_SEARCHES; i++) {
        r->n_ranked += x->reports[i].n_ranked;
        r->n_emitted += x->reports[i].n_emitted;
    }
}

/* *at: the search that has the fastest plan. */
static enum status run_all(struct restarts *x, struct fastest *best, int *at)
{
    for (int i = 1; i < N_SEARCHES; i++) {
        struct decisions d;
        bool found;
        double before = best->seconds;
        if (!restricts(x, &restrictions[i]) || x->work >= x->most_work)
            continue;
        x->below[i] = MIN(x->s->below, (1 + CLOSE) * before);
        TRY(search_within(x, (struct place_in){i, 1}, &d, &found));
        const double seconds = found ? x->reports[i].findings[0].seconds : HUGE_VAL;
        if (seconds >= (1 - SAME) * before)
            continue; /* what is listed is the one that was there before */
        TRY(fastest_compare(best, x->s->w, &d, &x->reports[i], seconds));
        *at = i;
    }
    return OK;
}

/* The one of the rank that is asked for, or the last there is. What a search finds in the place of
 * a plan without addresses may be another one: that is listed then. */
static enum status take_ranked(struct restarts *x, struct fastest *best, int at,
                               struct decisions *d, struct search_report *report)
{
    merge(x, NULL);
    const int rank = MIN(MAX(x->bounds->rank, 1), x->merged.n_findings);
    struct place_in want = x->places[rank - 1];
    bool is_at_hand = want.search == at && want.rank == x->reports[at].chosen + 1, found = false;
    if (!is_at_hand)
        TRY(search_within(x, want, d, &found));
    if (found) {
        at = want.search;
        fastest_release(best);
    } else {
        fastest_take(best, x->s->w, d, report);
    }
    merge(x, &x->reports[at].findings[x->reports[at].chosen]);
    *report = x->merged;
    return OK;
}

enum status search_deeper(struct search *s, const struct forecast *f,
                          const struct search_bounds *bounds, const struct decisions *configured,
                          struct decisions *d, struct search_report *report)
{
    const struct stage *stage = workload_stage(s->w, STAGE_TRAIN);
    struct restarts x = {.s = s,
                         .f = f,
                         .bounds = bounds,
                         .configured = configured,
                         .reports = {*report},
                         .below = {HUGE_VAL},
                         .has_gradients = has_gradients(s),
                         .work = work_of(s),
                         .most_work = most_work(stage)};
    struct fastest best = {.seconds = HUGE_VAL};
    int at = 0;
    if (s->gave_up)
        return OK;
    TRY(fastest_compare(&best, s->w, d, report, report->findings[0].seconds));
    enum status status = run_all(&x, &best, &at);
    if (status == OK)
        status = take_ranked(&x, &best, at, d, report);
    for (size_t i = 0; i < ARRAY_LEN(x.unmoved); i++)
        space_release(&x.unmoved[i]);
    if (status != OK)
        fastest_release(&best);
    return status;
}
