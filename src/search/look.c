/* look.c: where a search looks for plans, in which order, and how long. */
#include <math.h>
#include <string.h>

#include "search/search_internal.h"

enum {
    N_FIRST = 3,                /* candidates that are emitted to see what estimates are worth, */
    N_LOOKS = 8,                /* and others, while none of them fits, */
    LOOK_PART = 64,             /* for which the room is smaller by such a part; */
    N_LESSONS = 2,              /* before that a few, each with what the one before it has */
    LESSON = 32,                /* taken too much or too little, where that is such a part */
    EMISSION_WORK = 800 * 1000, /* instructions that are emitted in all, where programs are long */
    LEAST_EMISSIONS = 28,       /* programs, however long; */
    LEAST_OF_GROUP = 28,        /* of groups fewer rounds follow that would find more */
    N_PLACED = 3,               /* trials that are placed before smaller ones are looked for, */
    N_ROUNDS = 4,               /* so many times */
    MANY_GAPS = 512,            /* a part of the room */
    DESCENT = 2,                /* where the least is wanted, such a part of the room is gone */
    N_DESCENTS = 16,            /* down, by so many steps, */
    N_LONG_DESCENTS = 4,        /* of long programs fewer, */
    N_FURTHER_DOWN = 3,         /* and from the last that showed something by smaller ones */
};

#define SEEMS_SLOWER 1.01

/* What is found in the end is no faster than the first that fit by more than this part. */
#define FURTHER 0.025
/* Such a part of all programs shows that, of those that do not begin well. */
#define PATIENCE 0.25
/* What is behind by no more is another way of running the step, that a clock may like better. */
#define TIED 0.005

static bool is_long(const struct search *s)
{
    return s->n_at_hand >= LONG_PROGRAM;
}

/* What the last one with such a ring has taught about bytes; that is much the same for all. */
static int64_t learned_extra(const struct search *s, int64_t ring_bytes, int64_t otherwise)
{
    for (int i = s->n_tried; i-- > 0;) {
        if (s->tried[i].ring_bytes == ring_bytes)
            return s->tried[i].extra + s->tried[i].slack;
    }
    return otherwise;
}

/* The first that fit say how fast it can become; the very first less so. Who is patient waits for
 * more of them, and then expects the less the fewer are to come. */
static bool is_hopeless(const struct search *s, double further)
{
    const double left = 1 - (double)s->n_emitted / MAX(s->most_polished, 1);
    if (s->is_patient && (left > 1 - PATIENCE || s->most_polished == MAX_EMISSIONS))
        return false; /* of short programs all are emitted in no time */
    if (s->is_patient)
        further = MAX(FURTHER * left, TIED);
    return s->n_best > 0 && (1 - further) * s->best[0].seconds >= s->below;
}

bool search_goes_on(const struct search *s)
{
    return s->n_emitted < s->most_polished && !(s->is_patient && is_hopeless(s, FURTHER));
}

/* Emits the best of the ranking; others may have taught what these take. */
static enum status try_top(struct search *s, int64_t extra, int n_tried, bool by_lessons)
{
    const int n = MIN(s->n_top, n_tried);
    for (int i = 0; i < n; i++) {
        double seconds;
        /* A group's estimates are good, as it waits for little: changes of the best are worth more
         * than what seems slower, where time is short. */
        if (s->n_best > 0 && s->space.base.group > 1 && is_long(s) &&
            s->top[i].estimate > SEEMS_SLOWER * s->top[0].estimate)
            break;
        if (is_hopeless(s, 2 * FURTHER))
            break;
        for (int k = i; k < n && by_lessons; k++)
            s->top[k].extra = learned_extra(s, s->top[k].ring_bytes, extra);
        foresight_at(s, &(struct to_try){.candidates = s->top, .n = (size_t)n}, (size_t)i);
        TRY(search_try_candidate(s, &s->top[i], &seconds));
    }
    foresight_end(s->foresight);
    return OK;
}

static enum status look_around(struct search *s, int64_t extra, int n_tried, bool by_lessons)
{
    TRY(search_rank(s, extra));
    return try_top(s, extra, n_tried, by_lessons);
}

/* Programs of so many instructions that may be emitted. */
static int count_allowed(const struct search *s, int64_t n)
{
    int64_t least = s->space.base.group > 1 ? LEAST_OF_GROUP : LEAST_EMISSIONS;
    return (int)MIN(MAX(EMISSION_WORK / MAX(n, (int64_t)1), least), (int64_t)MAX_EMISSIONS);
}

/* Half are for candidates by their rank, the rest for changes of the best. */
static void allow_emissions(struct search *s, int64_t n)
{
    s->most_polished = count_allowed(s, n);
    s->most_emitted = s->most_polished / 2;
}

/* Fewer in all, where those so far were longer than it seemed. */
static void allow_no_more(struct search *s)
{
    if (s->n_emitted > 0)
        s->most_polished =
            MIN(s->most_polished, count_allowed(s, (s->n_instrs - s->n_before) / s->n_emitted));
}

static void begin_trials(struct search *s)
{
    s->n_before = s->n_instrs;
    s->n_best = s->n_emitted = s->n_tried = 0;
}

/* Probes go by places that are all alike: bytes may be fewer than they seem to be, or more. The
 * first of a ranking says by how much; where that is a lot, others are first with it. The ranking
 * is by *extra in the end. */
static enum status learn_extra(struct search *s, int64_t *extra)
{
    const int64_t room = s->space.room[TIER_DEVICE];
    for (int i = 0;; i++) {
        double seconds = HUGE_VAL;
        int64_t slack;
        TRY(search_rank(s, *extra));
        if (i == N_LESSONS || s->n_top == 0 || !space_expand(&s->space, &s->top[0]) ||
            !search_is_new(s, &s->top[0]))
            return OK;
        TRY(search_try(s, &s->top[0], &seconds, &slack));
        if (slack > -room / LESSON && slack < room / LESSON)
            return OK;
        *extra += slack;
    }
}

/* Where nothing seems to fit, what takes the least, or what would with less room. */
static enum status look_lower(struct search *s)
{
    const int64_t room = s->space.room[TIER_DEVICE];
    int64_t extra = 0;
    bool is_least = false;
    for (int i = 0; i < N_LOOKS && s->n_best == 0; i++) {
        TRY(learn_extra(s, &extra));
        TRY(try_top(s, extra, N_FIRST, true));
        if (s->n_top > 0) {
            extra -= room / LOOK_PART;
            continue;
        }
        if (is_least || !space_least_extra(&s->space, &extra))
            return OK;
        extra += room / LOOK_PART;
        is_least = true;
    }
    return OK;
}

/* Does a plan that was tried take so little too much that others may fit? */
static bool any_is_near(const struct search *s)
{
    enum { NEAR = 8 }; /* a part of the room */
    bool is = s->n_tried == 0;
    for (int i = 0; i < s->n_tried; i++)
        is |= s->tried[i].slack > -s->space.room[TIER_DEVICE] / NEAR;
    return is;
}

/* The first that fit. Probes may be wrong about some ways of running it and not about others, which
 * then seem not to fit: each is tried by what it takes itself, as a lesson of one rules out all. */
static enum status look_first(struct search *s, int n_afresh)
{
    static const int parts[] = {8, 4, 2, 1};
    begin_trials(s);
    TRY(look_lower(s));
    for (size_t i = 0; i < ARRAY_LEN(parts) && s->n_best == 0; i++) {
        if (s->is_hasty && !any_is_near(s))
            return OK;
        TRY(look_around(s, s->space.room[TIER_DEVICE] / parts[i], n_afresh, false));
    }
    return OK;
}

/* Gaps that are worth looking for plans in less room. */
static bool are_many(const struct search *s, const struct gaps *g)
{
    bool are = false;
    for (int t = 0; t < TIER_COUNT; t++)
        are |= g->n_bytes[t] > 0 && g->n_bytes[t] >= s->space.room[t] / MANY_GAPS;
    return are;
}

/* Addresses of a group take more than their bytes, by a part that is much the same for all plans of
 * it: one is placed to see that, before they are looked for in room that there is not. */
static enum status foresee_gaps(struct search *s)
{
    int64_t room[TIER_COUNT];
    struct gaps gaps;
    if (s->n_best == 0 || s->space.base.group <= 1)
        return OK;
    TRY(search_find_gaps(s, &gaps));
    if (!are_many(s, &gaps))
        return OK;
    memcpy(room, s->space.room, sizeof(room));
    for (int t = 0; t < TIER_COUNT; t++)
        s->space.room[t] -= gaps.n_bytes[t];
    TRY(look_first(s, N_TOP));
    if (s->n_best > 0)
        return OK;
    memcpy(s->space.room, room, sizeof(room));
    return look_first(s, N_TOP);
}

/* Changes of the best, while there are emissions left and they help. */
static enum status look_near(struct search *s)
{
    struct candidate known[N_UNLIKE];
    TRY(search_climb(s));
    s->most_emitted += (s->most_polished - s->most_emitted) / 2;
    for (int n = 0; n < N_UNLIKE && s->n_emitted < s->most_emitted && search_goes_on(s); n++) {
        const struct trial *t = search_find_unlike(s, known, n);
        if (!t)
            break;
        struct candidate at = known[n] = t->c;
        double seconds = t->seconds;
        for (bool improved = true; improved && s->n_emitted < s->most_emitted;)
            TRY(search_step(s, &at, &seconds, &improved));
    }
    return search_polish(s);
}

/* By what the best has taught about bytes; and while there are emissions left as if that were true
 * of it alone. */
static enum status look_everywhere(struct search *s)
{
    const int64_t room = s->space.room[TIER_DEVICE];
    const int64_t extras[] = {s->best[0].c.extra + s->best[0].slack, 0, -room / 16, room / 8};
    for (size_t i = 0; i < ARRAY_LEN(extras) && s->n_emitted < s->most_polished; i++) {
        allow_no_more(s);
        s->most_emitted = s->n_emitted + (s->most_polished - s->n_emitted) / 2;
        TRY(look_around(s, extras[i], N_TOP, true));
        s->gave_up = is_hopeless(s, FURTHER);
        if (s->gave_up)
            return OK;
        allow_no_more(s);
        TRY(look_near(s));
    }
    s->gave_up = is_hopeless(s, FURTHER);
    return OK;
}

/* Groups against the first that fit, which say how fast it can become without them: where they win,
 * the rest of this search would be for nothing. */
static enum status try_groups(struct search *s)
{
    if (!s->groups || s->n_best == 0)
        return OK;
    search_restore(s, &s->best[0]);
    const struct decisions d = space_decisions(&s->space, &s->best[0].c, s->places);
    TRY(workload_decide(s->w, &d));
    TRY(workload_bound(s->w));
    TRY(grouping_try(s->groups, &d, false));
    s->n_at_hand = (int64_t)s->space.stage->program->instrs.n;
    s->gave_up |= s->groups->won;
    s->below = MIN(s->below, grouping_bar(s->groups));
    s->is_patient |= s->below < HUGE_VAL;
    return OK;
}

static enum status look(struct search *s, bool is_first)
{
    allow_emissions(s, s->space.n_instrs); /* of a program that keeps everything, */
    s->is_patient |= s->below < HUGE_VAL && s->most_polished == MAX_EMISSIONS; /* all are cheap */
    TRY(look_first(s, N_TOP));
    allow_emissions(s, s->n_at_hand); /* and one with its copies */
    s->gave_up = is_hopeless(s, FURTHER);
    if (is_first)
        TRY(try_groups(s));
    if (s->n_best == 0 || s->gave_up)
        return OK;
    if (is_first)
        TRY(foresee_gaps(s));
    return look_everywhere(s);
}

/* Of long programs: what was best is near what is best now, and few more are worth their time. */
static void allow_fewer(struct search *s)
{
    s->most_emitted = s->most_polished / 4;
    s->most_polished = s->most_emitted + s->most_polished / 4;
}

/* Where saved sets have nothing left to give, fetching less far ahead has. */
static enum status try_known(struct search *s, const struct candidate known[N_FIRST], int n,
                             int ring_quarters)
{
    for (int i = 0; i < n; i++) {
        struct candidate c = known[i];
        double seconds;
        c.ring_bytes = c.ring_bytes / 4 * ring_quarters;
        TRY(search_try_candidate(s, &c, &seconds));
    }
    return OK;
}

/* With less room than before, by the gaps: from what fits it of what was found, and what was best
 * then. */
static enum status look_again(struct search *s, const struct candidate known[N_FIRST], int n,
                              const struct gaps *less)
{
    allow_emissions(s, s->n_at_hand);
    if (is_long(s))
        allow_fewer(s);
    search_take_room(s, less);
    TRY(try_known(s, known, n, 4));
    for (int quarters = 3; quarters > 1 && s->n_best == 0; quarters--)
        TRY(try_known(s, known, n, quarters));
    if (s->n_best == 0)
        return look(s, false);
    return is_long(s) ? look_near(s) : look_everywhere(s);
}

static const struct trial *find_smallest(const struct search *s)
{
    const struct trial *found = &s->best[0];
    for (int i = 1; i < s->n_best; i++) {
        if (s->best[i].n_bytes[TIER_DEVICE] < found->n_bytes[TIER_DEVICE])
            found = &s->best[i];
    }
    return found;
}

/* Plans that fit so much room; *least, *smallest: of those so far. */
static enum status look_within(struct search *s, int64_t room, int64_t *least,
                               struct trial *smallest)
{
    if (room >= *least)
        return OK;
    s->space.room[TIER_DEVICE] = room;
    allow_emissions(s, s->space.n_instrs);
    TRY(look_first(s, N_FIRST));
    if (s->n_best == 0)
        return OK;
    const struct trial *t = find_smallest(s);
    search_restore(s, t);
    search_save(s, smallest);
    smallest->c = t->c;
    *least = t->n_bytes[TIER_DEVICE];
    return OK;
}

/* What fits a room may not be found in a larger one: where one shows nothing the next may. */
enum status search_descend(struct search *s, struct trial *smallest, bool *found)
{
    const int64_t most = s->space.room[TIER_DEVICE];
    const int n_rooms = is_long(s) ? N_LONG_DESCENTS : N_DESCENTS;
    int64_t least = most;
    for (int i = 1; i <= n_rooms; i++)
        TRY(look_within(s, most - most / DESCENT * i / n_rooms, &least, smallest));
    const int64_t step = most / DESCENT / n_rooms / (N_FURTHER_DOWN + 1), from = least;
    for (int i = 1; i <= N_FURTHER_DOWN; i++)
        TRY(look_within(s, from - step * i, &least, smallest));
    *found = least < most;
    return OK;
}

static int note_best(const struct search *s, struct candidate known[N_FIRST])
{
    int n = 0;
    for (int i = 0; i < s->n_best && n < N_FIRST; i++) {
        if (n == 0 || !candidates_are_same(&s->best[i].c, &known[n - 1]))
            known[n++] = s->best[i].c;
    }
    return n;
}

/* What plans have to take less for such gaps to fit as well, of the room that there is, of which
 * the last ones had a part. */
static void find_less(const struct search *s, const int64_t room[TIER_COUNT], struct gaps *g)
{
    enum { LEAST = 256 }; /* a part of the room */
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t less = g->n_bytes[t] - (room[t] - s->space.room[t]);
        if (g->n_bytes[t] > 0)
            g->n_bytes[t] = MAX(less, s->space.room[t] / LEAST);
    }
}

enum status search_look(struct search *s, struct decisions *d, bool *found)
{
    struct candidate known[N_FIRST];
    struct gaps gaps = {0};
    int64_t room[TIER_COUNT];
    int n_known = 0;
    memcpy(room, s->space.room, sizeof(room));
    for (int round = 0; round < N_ROUNDS; round++) {
        TRY(round == 0 ? look(s, true) : look_again(s, known, n_known, &gaps));
        if (s->n_best == 0 || s->gave_up)
            return OK;
        n_known = note_best(s, known);
        TRY(search_choose(s, round + 1 < N_ROUNDS ? N_PLACED : N_LAST, d, found, &gaps));
        if (*found)
            return OK;
        find_less(s, room, &gaps);
    }
    return OK;
}
