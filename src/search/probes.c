/* probes.c: programs that say what a place needs while it works.
 *
 * A place has some twenty options, and a program takes milliseconds. Where many places are alike,
 * they share programs: each run of neighbours has an option of its own,
 *
 *     block    0  1  2   3  4  5   6  7  8  ...
 *     option   0  0  0   1  1  1   2  2  2
 *                 ^         ^         ^        is what all of them need with it
 *
 * and the middle one, between two of its kind, stands for all. Where few are alike, all take the
 * same option in one program after the other, and each speaks for itself; beside many that share
 * programs it is asked only as often as they need some, and a few times more.
 */
#include "search/probes.h"

#include <string.h>

#define UNKNOWN (-1)

enum {
    RUN = 3,
    FEW_ROUNDS = 3, /* programs that are for what is not alike too, where others share theirs */
};

/* A place among those that are alike, and how these take their options. */
struct dealt {
    int alike; /* the first of them; itself, where it is that */
    int index; /* among them */
    int n_alike;
    int n_runs; /* options in a program: 1: all of them take the same */
};

struct probes {
    struct space *space;
    struct dealt *dealt;         /* [n_places] */
    int *option;                 /* [n_places]: in the program at hand */
    struct place_choice *places; /* [n_places] */
    int64_t *peaks;              /* [n_phases]: of that program */
    int n_rounds;                /* programs until all is known */
};

static int n_options(const struct probes *x, int place)
{
    return x->space->options[place].n;
}

static void find_alike(struct probes *x)
{
    const struct survey *v = &x->space->survey;
    for (int p = 0; p < v->n_places; p++)
        x->dealt[p] = (struct dealt){.alike = p};
    for (int i = 0; i < v->n_places; i++) {
        int p = v->order[i], first = 0;
        while (v->places[v->order[first]].shape != v->places[p].shape)
            first++;
        struct dealt *d = &x->dealt[v->order[first]];
        x->dealt[p].alike = v->order[first];
        x->dealt[p].index = d->n_alike++;
    }
    for (int p = 0; p < v->n_places; p++) {
        struct dealt *d = &x->dealt[p];
        d->n_alike = x->dealt[d->alike].n_alike;
        d->n_runs = MAX(d->n_alike / RUN, 1);
    }
}

/* Programs until every place has had every option; or where many share them, those that do. */
static int count_rounds(const struct probes *x)
{
    int most = 0, most_shared = 0;
    for (int p = 0; p < x->space->survey.n_places; p++) {
        int n_runs = x->dealt[p].n_runs, n_rounds = (n_options(x, p) + n_runs - 1) / n_runs;
        most = MAX(most, n_rounds);
        most_shared = n_runs > 1 ? MAX(most_shared, n_rounds) : most_shared;
    }
    return most_shared > 0 ? MIN(MAX(most_shared, (int)FEW_ROUNDS), most) : most;
}

static enum status probes_init(struct probes *x, struct space *s)
{
    struct pool *pool = &s->survey.pool;
    size_t n = (size_t)s->survey.n_places;
    *x = (struct probes){.space = s};
    TRY(pool_try(pool, &x->dealt, n * sizeof(*x->dealt)));
    TRY(pool_try(pool, &x->option, n * sizeof(*x->option)));
    TRY(pool_try(pool, &x->places, n * sizeof(*x->places)));
    TRY(pool_try(pool, &x->peaks, (size_t)(s->survey.n_phases + 1) * sizeof(*x->peaks)));
    find_alike(x);
    x->n_rounds = count_rounds(x);
    return OK;
}

/* The phases' peaks of a program in which every place takes its option. */
static enum status probe(struct probes *x, const bool away[HOME_CLASS_COUNT])
{
    struct space *s = x->space;
    struct plan *plan = &s->plan;
    struct program *program = NULL;
    struct storage storage;
    for (int p = 0; p < s->survey.n_places; p++) {
        x->places[p] = (struct place_choice){.saved = &s->options[p].items[x->option[p]].set};
        memcpy(x->places[p].away, away, sizeof(x->places[p].away));
    }
    struct decisions d = s->base;
    d.places = x->places;
    d.n_places = s->survey.n_places;
    d.ring_bytes = 0;
    storage_init(&storage);
    enum status status;
    plan_restart(plan, s->stage->graph);
    TRY_GOTO(decisions_apply(&d, plan, s->stage->graph, s->work->device), out);
    TRY_GOTO(program_emit(&program, "probe", s->stage->graph, plan, s->work->device, &storage),
             out);
    TRY_GOTO(survey_peaks(&s->survey, program, x->peaks), out);
out:
    program_free(program);
    storage_release(&storage);
    return status;
}

/* ---- needs ----------------------------------------------------------------------------------- */

/* The option of a place in a round; no fewer than there are: it has had all. Of more than there are
 * rounds a place by itself has some, the first and the last among them. */
static int option_in(const struct probes *x, int place, int round)
{
    const struct dealt *d = &x->dealt[place];
    int n = n_options(x, place), run = MIN(d->index / RUN, d->n_runs - 1);
    if (d->n_runs > 1)
        return round * d->n_runs + run;
    return n <= x->n_rounds ? round : round * (n - 1) / (x->n_rounds - 1);
}

static void deal(struct probes *x, int round)
{
    for (int p = 0; p < x->space->survey.n_places; p++)
        x->option[p] = MIN(option_in(x, p, round), n_options(x, p) - 1);
}

/* Is what the place needs in this round what is to be known? */
static bool is_measured(const struct probes *x, int place, int round)
{
    const struct dealt *d = &x->dealt[place];
    bool is_middle = d->index % RUN == RUN / 2 && d->index / RUN < d->n_runs;
    return option_in(x, place, round) < n_options(x, place) && (d->n_runs == 1 || is_middle);
}

/* What others keep on the device in a phase. */
static int64_t kept_by_others(const struct probes *x, int place, int phase)
{
    const struct survey *v = &x->space->survey;
    int64_t n_bytes = 0;
    int at = v->phases[phase].beside;
    for (int p = 0; p < v->n_places; p++) {
        const struct place_facts *f = &v->places[p];
        bool alive = f->forward >= 0 && f->forward <= at && at <= f->backward;
        if (p != place && alive)
            n_bytes += x->space->options[p].items[x->option[p]].n_kept;
    }
    return n_bytes;
}

/* The peaks of its phases less what others keep. */
static int64_t need_of(const struct probes *x, int place)
{
    const struct survey *v = &x->space->survey;
    int64_t need = x->space->options[place].items[x->option[place]].n_kept;
    for (int q = 0; q < v->n_phases; q++) {
        if (v->phases[q].place == place)
            need = MAX(need, x->peaks[q] - kept_by_others(x, place, q));
    }
    return need;
}

/* Does what the one needs now say what the other does with the same option? */
static bool speaks_for(const struct probes *x, int place, int other)
{
    const struct dealt *d = &x->dealt[place];
    return d->n_runs > 1 ? x->dealt[other].alike == d->alike : other == place;
}

static void note_needs(const struct probes *x, int round, struct link_option *links)
{
    const struct survey *v = &x->space->survey;
    for (int p = 0; p < v->n_places; p++) {
        if (!is_measured(x, p, round))
            continue;
        int64_t need = need_of(x, p);
        for (int i = 0; i < v->n_places; i++) {
            if (speaks_for(x, p, v->order[i]))
                links[i * MAX_OPTIONS + x->option[p]].n_need = need;
        }
    }
}

/* What was not asked takes, beside what it keeps, no more than what was. */
static void fill_in(const struct options *o, struct link_option *links)
{
    int64_t most = 0;
    for (int k = 0; k < o->n; k++) {
        links[k].n_kept = o->items[k].n_kept;
        most = MAX(most, links[k].n_need - links[k].n_kept);
    }
    for (int k = 0; k < o->n; k++) {
        if (links[k].n_need == UNKNOWN)
            links[k].n_need = links[k].n_kept + most;
    }
}

enum status probe_needs(struct space *s, bool gradients_away, struct link_option **out)
{
    const bool away[HOME_CLASS_COUNT] = {[HOME_GRADIENTS] = gradients_away};
    const int n_places = s->survey.n_places;
    struct probes x;
    TRY(probes_init(&x, s));
    TRY(pool_try(&s->survey.pool, out, (size_t)n_places * MAX_OPTIONS * sizeof(**out)));
    for (int i = 0; i < n_places * MAX_OPTIONS; i++)
        (*out)[i].n_need = UNKNOWN;
    for (int round = 0; round < x.n_rounds; round++) {
        deal(&x, round);
        TRY(probe(&x, away));
        note_needs(&x, round, *out);
    }
    for (int i = 0; i < n_places; i++)
        fill_in(&s->options[s->survey.order[i]], &(*out)[i * MAX_OPTIONS]);
    return OK;
}

/* ---- what fetches add ------------------------------------------------------------------------ */

static int64_t largest(const int64_t *peaks, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most = MAX(most, peaks[i]);
    return most;
}

enum status probe_staged(struct space *s)
{
    const bool none[HOME_CLASS_COUNT] = {false};
    struct probes x;
    TRY(probes_init(&x, s));
    for (int p = 0; p < s->survey.n_places; p++)
        x.option[p] = s->options[p].n - 1;
    TRY(probe(&x, none));
    int64_t at_home = largest(x.peaks, s->survey.n_phases);
    for (int c = 0; c < HOME_CLASS_COUNT; c++) {
        bool away[HOME_CLASS_COUNT] = {false};
        away[c] = true;
        if (c == HOME_GRADIENTS || space_class_bytes(s, (enum home_class)c) == 0)
            continue;
        TRY(probe(&x, away));
        s->staged[c] = MAX(largest(x.peaks, s->survey.n_phases) - at_home, (int64_t)0);
    }
    return OK;
}
