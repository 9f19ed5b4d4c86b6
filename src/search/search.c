#include "search/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    SMALL_BYTES = 1 << 20,
    N_FIRST = 3,               /* candidates that are emitted to see what estimates are worth, */
    N_TOP = 12,                /* and when that is known */
    N_CORRECTIONS = 6,         /* emissions of one candidate, each with what the last one taught */
    MAX_EMISSIONS = 64,        /* of one search; fewer where programs are long: */
    EMISSION_WORK = 80 * 1000, /* instructions in all */
    N_BEST = 16,               /* that are remembered */
    N_PLACED = 3,              /* of these, before it is looked for smaller ones, */
    N_ROUNDS = 4,              /* so many times */
};

/* A larger ring is worth its memory when the step is shorter by this part. */
#define WORTH 0.01

/* Estimates are believed that far: what is slower by more is not emitted. */
#define DOUBT 0.05

/* A candidate that was emitted and fits, with what it came to. */
struct trial {
    struct candidate c;
    double seconds;
    int64_t n_bytes[TIER_COUNT];
    int *option; /* [n_places] */
    bool (*away)[HOME_CLASS_COUNT];
};

struct search {
    struct workload *w;
    const struct limits *limits;
    const struct kernel_times *times;
    struct space space;
    struct place_choice *places; /* of the candidate at hand */
    struct candidate top[N_TOP]; /* by estimate, best first */
    int n_top;
    struct trial best[N_BEST]; /* by seconds */
    int n_best;
    int n_ranked, n_emitted;
    int most_emitted, most_polished; /* what n_emitted may come to, by steps and after them */
    uint64_t tried[MAX_EMISSIONS];   /* what was emitted, by a hash of what was expanded */
};

/* ---- what was found -------------------------------------------------------------------------- */

static enum status rank(void *user, const struct candidate *c)
{
    struct search *s = user;
    int at = s->n_top;
    s->n_ranked++;
    for (int i = 0; i < s->n_top; i++) {
        if (s->top[i].estimate == c->estimate) { /* a smaller ring does as well */
            s->top[i] = s->top[i].ring_bytes > c->ring_bytes ? *c : s->top[i];
            return OK;
        }
    }
    if (at == N_TOP && c->estimate >= s->top[N_TOP - 1].estimate)
        return OK;
    at = MIN(at, N_TOP - 1);
    for (; at > 0 && s->top[at - 1].estimate > c->estimate; at--)
        s->top[at] = s->top[at - 1];
    s->top[at] = *c;
    s->n_top = MIN(s->n_top + 1, (int)N_TOP);
    return OK;
}

static bool is_same(const struct trial *a, const struct trial *b)
{
    return a->seconds == b->seconds && a->n_bytes[TIER_DEVICE] == b->n_bytes[TIER_DEVICE];
}

static enum status make_room(struct search *s)
{
    struct pool *pool = &s->space.survey.pool;
    size_t n = (size_t)s->space.survey.n_places;
    TRY(pool_try(pool, &s->places, n * sizeof(*s->places)));
    for (int i = 0; i < N_BEST; i++) {
        TRY(pool_try(pool, &s->best[i].option, n * sizeof(*s->best[i].option)));
        TRY(pool_try(pool, &s->best[i].away, n * sizeof(*s->best[i].away)));
    }
    return OK;
}

/* What is at hand into a trial, and back. */
static void save(const struct search *s, struct trial *t)
{
    size_t n = (size_t)s->space.survey.n_places;
    memcpy(t->option, s->space.option, n * sizeof(*t->option));
    memcpy(t->away, s->space.away, n * sizeof(*t->away));
}

static void restore(struct search *s, const struct trial *t)
{
    size_t n = (size_t)s->space.survey.n_places;
    memcpy(s->space.option, t->option, n * sizeof(*t->option));
    memcpy(s->space.away, t->away, n * sizeof(*t->away));
}

static void keep(struct search *s, const struct trial *t)
{
    int at = MIN(s->n_best, N_BEST - 1);
    for (int i = 0; i < s->n_best; i++) {
        if (is_same(&s->best[i], t))
            return;
    }
    if (s->n_best == N_BEST && t->seconds >= s->best[at].seconds)
        return;
    struct trial new = s->best[at]; /* its arrays are free */
    new.c = t->c;
    new.seconds = t->seconds;
    memcpy(new.n_bytes, t->n_bytes, sizeof(new.n_bytes));
    save(s, &new);
    for (; at > 0 && s->best[at - 1].seconds > t->seconds; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = new;
    s->n_best = MIN(s->n_best + 1, (int)N_BEST);
}

/* ---- emitting -------------------------------------------------------------------------------- */

static enum status stage_seconds(const struct search *s, const struct stage *stage, double *seconds)
{
    struct prediction p;
    TRY(predict(&p, stage->program, s->w->device, s->times));
    enum status status = predict_step(&p, stage->program, s->w->device, stage->n_micro, seconds);
    prediction_release(&p);
    return status;
}

/* A step; where nothing trains, one run of every stage: a batch, or a prompt and a token. */
static enum status use_seconds(const struct search *s, double *seconds)
{
    const struct stage *trains = workload_stage(s->w, STAGE_TRAIN);
    *seconds = 0;
    if (trains)
        return stage_seconds(s, trains, seconds);
    for (int i = 0; i < s->w->n_stages; i++) {
        double once;
        TRY(stage_seconds(s, &s->w->stages[i], &once));
        *seconds += once;
    }
    return OK;
}

static bool fits(const struct search *s)
{
    return s->w->n_bytes[TIER_DEVICE] <= s->space.room[TIER_DEVICE] &&
           s->w->n_bytes[TIER_HOST] <= s->space.room[TIER_HOST];
}

/* Emits what was expanded last. */
static enum status emit(struct search *s, const struct candidate *c)
{
    struct decisions d = space_decisions(&s->space, c, s->places);
    TRY(workload_decide(s->w, &d));
    s->n_emitted++;
    return workload_bound(s->w);
}

/* Is what was expanded last new? */
static bool is_new(struct search *s, const struct candidate *c)
{
    const struct space *x = &s->space;
    size_t n = (size_t)x->survey.n_places;
    uint64_t hash = hash_bytes(x->option, n * sizeof(*x->option)) * 31 +
                    hash_bytes(x->away, n * sizeof(*x->away)) * 17 + (uint64_t)c->ring_bytes;
    for (int i = 0; i < s->n_emitted; i++) {
        if (s->tried[i] == hash)
            return false;
    }
    s->tried[s->n_emitted] = hash;
    return true;
}

/* Emits c and, where it fits, keeps it; *slack is what it leaves of the device's room. */
static enum status try_once(struct search *s, const struct candidate *c, double *seconds,
                            int64_t *slack)
{
    struct trial t = {.c = *c};
    TRY(emit(s, c));
    *slack = s->space.room[TIER_DEVICE] - s->w->n_bytes[TIER_DEVICE];
    if (!fits(s))
        return OK;
    TRY(use_seconds(s, &t.seconds));
    memcpy(t.n_bytes, s->w->n_bytes, sizeof(t.n_bytes));
    keep(s, &t);
    *seconds = MIN(*seconds, t.seconds);
    return OK;
}

/* Emits c, as often as its bytes teach something about how many the saved sets may take; *seconds
 * is the least of what fits (HUGE_VAL: nothing does). */
static enum status try_candidate(struct search *s, struct candidate *c, double *seconds)
{
    int64_t room = s->space.room[TIER_DEVICE], slack = 0, margin = room / 512;
    *seconds = HUGE_VAL;
    for (int i = 0; i < N_CORRECTIONS && s->n_emitted < s->most_emitted; i++) {
        if (!space_expand(&s->space, c))
            return OK;
        if (is_new(s, c)) {
            TRY(try_once(s, c, seconds, &slack));
            c->extra += slack;
        } else if (slack >= 0) {
            return OK;
        } else { /* the next smaller choice is further away than what was over */
            c->extra -= margin;
            margin *= 2;
        }
        if (slack >= 0 && slack < room / 128)
            return OK;
    }
    return OK;
}

/* ---- step by step ---------------------------------------------------------------------------- */

enum { MAX_NEIGHBOURS = 40 };

static int clamp(const struct search *s, int n)
{
    return MAX(0, MIN(n, s->space.n_blocks));
}

static bool is_open(const struct search *s, enum home_class c)
{
    static const enum extent extents[HOME_CLASS_COUNT] = {EXTENT_WEIGHTS, EXTENT_STATES,
                                                          EXTENT_GRADIENTS};
    return !s->space.bounds.fixed[extents[c]];
}

/* Candidates that differ in one number. */
static int list_neighbours(const struct search *s, const struct candidate *c,
                           struct candidate out[MAX_NEIGHBOURS])
{
    const int eighth = MAX(s->space.n_blocks / 8, 2), steps[] = {-eighth, -1, 1, eighth};
    static const double rings[] = {0.5, 0.75, 1.35, 2.0};
    int n = 0;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        if (!is_open(s, (enum home_class)h))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            out[n] = *c;
            out[n++].homes[h].n_blocks = clamp(s, c->homes[h].n_blocks + steps[i]);
        }
        out[n] = *c;
        out[n++].homes[h].ends = !c->homes[h].ends;
        out[n] = *c;
        out[n++].homes[h].from_first = !c->homes[h].from_first;
    }
    for (size_t i = 0; i < ARRAY_LEN(rings); i++) {
        out[n] = *c;
        out[n++].ring_bytes = (int64_t)((double)c->ring_bytes * rings[i]);
    }
    for (int step = -1; step <= 1; step += 2) {
        out[n] = *c;
        out[n++].price = MAX(0, MIN(c->price + step, s->space.n_prices - 1));
    }
    return n;
}

static int by_estimate(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

/* Tries the neighbours of the best in the order of their estimates until one is better. */
static enum status step_once(struct search *s, bool *improved)
{
    struct candidate list[MAX_NEIGHBOURS];
    const struct candidate from = s->best[0].c;
    double best = s->best[0].seconds;
    int n = list_neighbours(s, &from, list), n_open = 0;
    *improved = false;
    for (int i = 0; i < n; i++) {
        if (memcmp(&list[i], &from, sizeof(from)) == 0 || !space_expand(&s->space, &list[i]))
            continue;
        list[n_open] = list[i];
        list[n_open].estimate = space_estimate(&s->space, &list[i]);
        n_open++;
    }
    s->n_ranked += n_open;
    qsort(list, (size_t)n_open, sizeof(*list), by_estimate);
    for (int i = 0; i < n_open && s->n_emitted < s->most_emitted && !*improved; i++) {
        double seconds;
        if (list[i].estimate > (1 + DOUBT) * from.estimate)
            break;
        TRY(try_candidate(s, &list[i], &seconds));
        *improved = seconds < best;
    }
    return OK;
}

/* ---- place by place -------------------------------------------------------------------------- */

/* A change of one place of the best: another option, or a class whose home is elsewhere; or of the
 * ring, alone or with it. */
struct change {
    int place, option; /* option -1: the class; place -1: the ring alone */
    enum home_class home;
    int64_t ring_bytes;
    int64_t n_bytes; /* about what it adds on the device */
    double estimate;
};

static void apply_change(struct search *s, const struct change *c)
{
    if (c->place < 0)
        return;
    if (c->option >= 0)
        s->space.option[c->place] = c->option;
    else
        s->space.away[c->place][c->home] = !s->space.away[c->place][c->home];
}

static int by_gain(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

/* Is it the first place of its kind with this option? Others are alike. */
static bool is_first_alike(const struct search *s, int place)
{
    const struct survey *v = &s->space.survey;
    for (int p = 0; p < place; p++) {
        if (v->places[p].shape == v->places[place].shape &&
            s->space.option[p] == s->space.option[place] &&
            memcmp(s->space.away[p], s->space.away[place], sizeof(s->space.away[p])) == 0)
            return false;
    }
    return true;
}

struct changes {
    VEC(struct change) list;
    const struct trial *from;
    double most; /* seconds: what is estimated at more is left out */
};

static enum status consider(struct search *s, struct changes *x, struct change c)
{
    const struct trial *from = x->from;
    struct candidate changed = from->c;
    const struct option *options = c.place < 0 ? NULL : s->space.options[c.place].items;
    changed.ring_bytes = c.ring_bytes;
    c.n_bytes = 2 * (c.ring_bytes - from->c.ring_bytes);
    if (options && c.option >= 0)
        c.n_bytes += options[c.option].n_kept - options[from->option[c.place]].n_kept;
    else if (options)
        c.n_bytes += s->space.survey.places[c.place].n_bytes[c.home] *
                     (from->away[c.place][c.home] ? 1 : -1);
    apply_change(s, &c);
    c.estimate = space_estimate(&s->space, &changed);
    restore(s, from);
    s->n_ranked++;
    return c.estimate < x->most || c.place < 0 ? vec_push(&x->list, c) : OK;
}

static enum status consider_place(struct search *s, struct changes *x, int place, int64_t ring)
{
    struct change c = {.place = place, .ring_bytes = ring};
    if (!is_first_alike(s, place))
        return OK;
    for (c.option = 0; c.option < s->space.options[place].n; c.option++) {
        if (c.option != x->from->option[place])
            TRY(consider(s, x, c));
    }
    c.option = -1;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        c.home = (enum home_class)h;
        if (is_open(s, c.home) && s->space.survey.places[place].n_bytes[h] > 0)
            TRY(consider(s, x, c));
    }
    return OK;
}

/* Of more changes than may be emitted, those whose bytes there seem to be. */
static void leave_out_large(const struct search *s, struct changes *x)
{
    size_t n = 0;
    int64_t room = s->space.room[TIER_DEVICE];
    int64_t slack = room - x->from->n_bytes[TIER_DEVICE] + room / 64;
    if (x->list.n <= (size_t)(s->most_polished - s->n_emitted))
        return;
    for (size_t i = 0; i < x->list.n; i++) {
        if (x->list.items[i].n_bytes <= slack)
            x->list.items[n++] = x->list.items[i];
    }
    x->list.n = n;
}

/* Changes that the clocks do not dislike, best first. */
static enum status list_changes(struct search *s, struct changes *x)
{
    static const int64_t parts[] = {4, 8, 16, 32};
    int64_t now = x->from->c.ring_bytes;
    x->most = (1 + DOUBT) * space_estimate(&s->space, &x->from->c);
    for (size_t i = 0; i <= ARRAY_LEN(parts); i++) {
        int64_t ring = i == 0 ? now : s->space.room[TIER_DEVICE] / parts[i - 1];
        if (i > 0 && (ring == now || !s->w->device->ops->queue))
            continue;
        if (i > 0)
            TRY(consider(s, x, (struct change){.place = -1, .ring_bytes = ring}));
        for (int p = 0; p < s->space.survey.n_places; p++)
            TRY(consider_place(s, x, p, ring));
    }
    leave_out_large(s, x);
    qsort(x->list.items, x->list.n, sizeof(*x->list.items), by_gain);
    return OK;
}

static enum status try_change(struct search *s, const struct trial *from, const struct change *c,
                              bool *improved)
{
    struct candidate changed = from->c;
    double seconds = HUGE_VAL;
    int64_t slack;
    changed.ring_bytes = c->ring_bytes;
    restore(s, from);
    apply_change(s, c);
    if (is_new(s, &changed))
        TRY(try_once(s, &changed, &seconds, &slack));
    *improved = seconds < from->seconds;
    return OK;
}

static enum status polish_once(struct search *s, bool *improved)
{
    struct trial from = s->best[0];
    struct changes x = {.from = &from};
    struct pool *pool = &s->space.survey.pool;
    size_t n_places = (size_t)s->space.survey.n_places;
    TRY(pool_try(pool, &from.option, n_places * sizeof(*from.option)));
    TRY(pool_try(pool, &from.away, n_places * sizeof(*from.away)));
    restore(s, &s->best[0]);
    save(s, &from);
    enum status status;
    *improved = false;
    TRY_GOTO(list_changes(s, &x), out);
    for (size_t i = 0; i < x.list.n && s->n_emitted < s->most_polished && !*improved; i++)
        TRY_GOTO(try_change(s, &from, &x.list.items[i], improved), out);
out:
    vec_release(&x.list);
    return status;
}

/* Ranks, and emits the best. */
static enum status look_around(struct search *s, int64_t extra, int n_tried)
{
    s->n_top = 0;
    TRY(space_visit(&s->space, extra, rank, s));
    for (int i = 0; i < MIN(s->n_top, n_tried); i++) {
        double seconds;
        TRY(try_candidate(s, &s->top[i], &seconds));
    }
    return OK;
}

/* Two thirds are for the numbers of a candidate, the rest for single places. */
static void allow_emissions(struct search *s)
{
    int64_t n_instrs = MAX((int64_t)s->space.stage->program->instrs.n, (int64_t)1);
    s->most_polished = (int)MIN(MAX(EMISSION_WORK / n_instrs, (int64_t)32), (int64_t)MAX_EMISSIONS);
    s->most_emitted = 2 * s->most_polished / 3;
}

static enum status look(struct search *s)
{
    const int64_t room = s->space.room[TIER_DEVICE];
    /* Probes go by places that are all alike: bytes may be fewer than they seem to be, or more. */
    const int64_t extras[] = {0,        -room / 16, -room / 8, -room / 4,
                              room / 8, room / 4,   room / 2,  room};
    allow_emissions(s);
    for (size_t i = 0; i < ARRAY_LEN(extras) && s->n_best == 0; i++)
        TRY(look_around(s, extras[i], N_FIRST));
    if (s->n_best == 0)
        return OK;
    TRY(look_around(s, s->best[0].c.extra, N_TOP));
    for (bool improved = true; improved && s->n_emitted < s->most_emitted;)
        TRY(step_once(s, &improved));
    for (bool improved = true; improved && s->n_emitted < s->most_polished;)
        TRY(polish_once(s, &improved));
    return OK;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Decisions that live as long as the workload. */
static enum status take(struct search *s, const struct trial *t, struct decisions *d)
{
    struct pool *pool = &s->w->pool;
    struct place_choice *places;
    restore(s, t);
    *d = space_decisions(&s->space, &t->c, s->places);
    TRY(pool_try(pool, &places, (size_t)d->n_places * sizeof(*places)));
    memcpy(places, s->places, (size_t)d->n_places * sizeof(*places));
    for (int p = 0; p < d->n_places; p++) {
        int like = 0;
        while (s->places[like].saved != s->places[p].saved)
            like++;
        if (like < p)
            places[p].saved = places[like].saved;
        else
            TRY(saved_set_copy(s->places[p].saved, pool, &places[p].saved));
    }
    d->places = places;
    return OK;
}

/* Runners-up are told apart by their time. */
static bool is_distinct(const struct search_report *r, double seconds)
{
    return r->n_findings == 0 || seconds > 1.002 * r->findings[r->n_findings - 1].seconds;
}

static void report_trials(struct search *s, struct search_report *out)
{
    *out = (struct search_report){.n_ranked = s->n_ranked, .n_emitted = s->n_emitted};
    for (int i = 0; i < s->n_best && out->n_findings < MAX_FINDINGS; i++) {
        const struct trial *t = &s->best[i];
        struct str text = {0};
        if (!is_distinct(out, t->seconds))
            continue;
        restore(s, t);
        struct decisions d = space_decisions(&s->space, &t->c, s->places);
        struct finding *f = &out->findings[out->n_findings++];
        f->seconds = t->seconds;
        memcpy(f->n_bytes, t->n_bytes, sizeof(f->n_bytes));
        decisions_add_text(&d, s->space.n_blocks, &text);
        (void)snprintf(f->text, sizeof(f->text), "%s", str_text(&text));
        str_release(&text);
    }
}

/* The fastest that still fits with addresses, of the first few; *over is the least that one of them
 * takes more than it was thought to. */
static enum status choose(struct search *s, int n_tried, struct decisions *d, bool *found,
                          int64_t *over)
{
    *found = false;
    *over = INT64_MAX;
    for (int n = 0; n < n_tried && s->n_best > 0 && !*found; n++) {
        struct forecast f = {0};
        TRY(take(s, &s->best[0], d));
        TRY(workload_decide(s->w, d));
        TRY(workload_emit(s->w));
        forecast_memory(&f, s->w, s->limits);
        *found = f.fits;
        if (*found)
            continue;
        *over = MIN(*over, s->w->n_bytes[TIER_DEVICE] - s->best[0].n_bytes[TIER_DEVICE]);
        struct trial used = s->best[0];
        memmove(&s->best[0], &s->best[1], (size_t)--s->n_best * sizeof(s->best[0]));
        s->best[s->n_best] = used; /* its arrays are free */
    }
    return OK;
}

/* Looks for plans by their bounds, and again with less room where their addresses take more. */
static enum status look_and_choose(struct search *s, struct decisions *d, bool *found)
{
    for (int round = 0; round < N_ROUNDS; round++) {
        int64_t over;
        s->n_best = s->n_emitted = 0;
        TRY(look(s));
        if (s->n_best == 0)
            return OK;
        TRY(choose(s, round + 1 < N_ROUNDS ? N_PLACED : N_BEST, d, found, &over));
        if (*found)
            return OK;
        s->space.room[TIER_DEVICE] -= MAX(over, s->space.room[TIER_DEVICE] / 256);
    }
    return OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* What the arenas may take: the budgets less what the process holds beside them. */
static void read_room(const struct forecast *f, int64_t room[TIER_COUNT])
{
    const struct budget *b = &f->budget;
    int64_t arenas[TIER_COUNT] = {f->arena_bytes, f->host_bytes, f->disk_bytes};
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t beside = MAX(b->needs[t] - arenas[t], (int64_t)0);
        room[t] = b->n_bytes[t] == INT64_MAX ? INT64_MAX / 4 : b->n_bytes[t] - beside;
    }
}

static enum status search_with(struct search *s, const struct decisions *base,
                               const struct search_bounds *bounds, const int64_t room[TIER_COUNT],
                               struct decisions *d, struct search_report *report, bool *found)
{
    *found = false;
    TRY(space_init(&s->space, s->w, s->times, base, bounds, room));
    enum status status = make_room(s);
    if (status == OK)
        status = look_and_choose(s, d, found);
    if (status == OK && *found && report)
        report_trials(s, report);
    space_release(&s->space);
    return status;
}

/* The ring with which d is fastest, if any fits. */
static enum status try_rings(struct search *s, const struct decisions *d, int64_t away,
                             struct decisions *best, double *least)
{
    static const int64_t parts[] = {INT64_MAX, 32, 16, 8, 4};
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        struct forecast f = {0};
        struct decisions more = *d;
        double seconds;
        more.ring_bytes = away / parts[k];
        TRY(workload_decide(s->w, &more));
        TRY(workload_bound(s->w));
        forecast_memory(&f, s->w, s->limits);
        TRY(use_seconds(s, &seconds));
        if (f.fits && seconds < (1 - WORTH) * *least) {
            *least = seconds;
            *best = more;
        }
    }
    return OK;
}

/* It fits: nothing more has to leave, and what has left is fetched no further ahead than it takes.
 */
static enum status choose_ring(struct search *s, struct decisions *d)
{
    int64_t away = s->w->n_bytes[TIER_HOST];
    struct decisions fewer = *d, best = *d;
    double least = HUGE_VAL;
    fewer.small_bytes = SMALL_BYTES; /* small tensors stay where there is room for them */
    TRY(try_rings(s, &fewer, away, &best, &least));
    if (least == HUGE_VAL)
        TRY(try_rings(s, d, away, &best, &least));
    *d = best;
    TRY(workload_decide(s->w, d));
    return workload_emit(s->w);
}

/* Is anything worth a copy of its own? In a small network nothing is, and all is moved that helps.
 */
static bool has_large(const struct graph *g)
{
    const struct decisions d = {.small_bytes = SMALL_BYTES};
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        if (decisions_is_large(&d, g, v))
            return true;
    }
    return false;
}

static enum status search_all(struct search *s, const struct forecast *f,
                              const struct search_bounds *bounds, struct decisions *d,
                              struct search_report *report, bool *found)
{
    const struct stage *stage = workload_stage(s->w, STAGE_TRAIN);
    const struct decisions configured = *d;
    int64_t room[TIER_COUNT];
    read_room(f, room);
    *found = false;
    for (int small = 1; small >= 0 && stage && !*found; small--) {
        struct decisions base = configured;
        base.small_bytes = small * SMALL_BYTES;
        if (small && !has_large(stage->graph))
            continue;
        *s = (struct search){.w = s->w, .limits = s->limits, .times = s->times};
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
    return f.fits && decisions_copy(d) ? choose_ring(s, d) : OK;
}

enum status search_plan(struct workload *w, const struct limits *limits,
                        const struct search_bounds *bounds, const struct kernel_times *times,
                        struct decisions *d, struct search_report *report)
{
    struct forecast f = {0};
    const struct decisions configured = *d;
    bool found;
    TRY(workload_decide(w, d));
    TRY(workload_bound(w));
    forecast_memory(&f, w, limits);
    if (f.fits) {
        TRY(workload_emit(w));
        forecast_memory(&f, w, limits);
    }
    if (f.fits && !decisions_copy(d))
        return OK;
    struct search s = {.w = w, .limits = limits, .times = times};
    if (f.fits)
        return choose_ring(&s, d);
    if (!workload_stage(w, STAGE_TRAIN))
        return plan_use(&s, bounds, d);
    TRY(search_all(&s, &f, bounds, d, report, &found));
    if (found)
        return OK;
    *d = configured;
    return search_least(w, limits, bounds, d);
}
