#include "search/space.h"

#include <string.h>

/* What a byte on the link counts for, in units of what it takes on an idle link. */
static const double link_prices[MAX_PRICES] = {0.02, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 1e9};

/* Rings are these parts of what the device has for the plan. */
static const int64_t ring_parts[] = {4, 6, 8, 12, 16, 24, 32, 64, INT64_MAX};

bool space_is_open(const struct space *s, enum home_class c)
{
    return !s->bounds.fixed[home_extent(c)];
}

/* ---- probes ---------------------------------------------------------------------------------- */

/* The phases' peaks of a program in which every place takes its option k, or its last. */
static enum status probe(struct space *s, int k, const bool away[HOME_CLASS_COUNT],
                         struct place_choice *places, int64_t *peaks)
{
    struct plan *plan = &s->plan;
    struct program *program = NULL;
    struct storage storage;
    for (int p = 0; p < s->survey.n_places; p++) {
        const struct options *o = &s->options[p];
        places[p] = (struct place_choice){.saved = &o->items[MIN(k, o->n - 1)].set};
        memcpy(places[p].away, away, sizeof(places[p].away));
    }
    struct decisions d = s->base;
    d.places = places;
    d.n_places = s->survey.n_places;
    d.ring_bytes = 0;
    storage_init(&storage);
    enum status status;
    plan_restart(plan, s->stage->graph);
    TRY_GOTO(decisions_apply(&d, plan, s->stage->graph, s->work->device), out);
    TRY_GOTO(program_emit(&program, "probe", s->stage->graph, plan, s->work->device, &storage),
             out);
    TRY_GOTO(survey_peaks(&s->survey, program, peaks), out);
out:
    program_free(program);
    storage_release(&storage);
    return status;
}

static int64_t largest(const int64_t *peaks, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most = MAX(most, peaks[i]);
    return most;
}

/* What others keep on the device in a phase when all have option k. */
static int64_t kept_by_others(const struct space *s, int k, int place, int phase)
{
    int64_t n_bytes = 0;
    int at = s->survey.phases[phase].beside;
    for (int p = 0; p < s->survey.n_places; p++) {
        const struct place_facts *x = &s->survey.places[p];
        bool alive = x->forward >= 0 && x->forward <= at && at <= x->backward;
        if (p != place && alive)
            n_bytes += s->options[p].items[MIN(k, s->options[p].n - 1)].n_kept;
    }
    return n_bytes;
}

/* What each place needs while it works: the peaks of its phases less what others keep. */
static void note_needs(const struct space *s, int k, const int64_t *peaks,
                       struct link_option *links)
{
    for (int i = 0; i < s->survey.n_places; i++) {
        int p = s->survey.order[i], option = MIN(k, s->options[p].n - 1);
        struct link_option *link = &links[i * MAX_OPTIONS + option];
        link->n_kept = link->n_need = s->options[p].items[option].n_kept;
        for (int q = 0; q < s->survey.n_phases; q++) {
            if (s->survey.phases[q].place == p)
                link->n_need = MAX(link->n_need, peaks[q] - kept_by_others(s, k, p, q));
        }
    }
}

static enum status make_links(struct space *s, bool gradients_away, struct place_choice *places,
                              int64_t *peaks, struct link_option **out)
{
    const bool away[HOME_CLASS_COUNT] = {[HOME_GRADIENTS] = gradients_away};
    int most = 0;
    TRY(pool_try(&s->survey.pool, out, (size_t)s->survey.n_places * MAX_OPTIONS * sizeof(**out)));
    for (int p = 0; p < s->survey.n_places; p++)
        most = MAX(most, s->options[p].n);
    for (int k = 0; k < most; k++) {
        TRY(probe(s, k, away, places, peaks));
        note_needs(s, k, peaks, *out);
    }
    return OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static double link_price(const struct device *d)
{
    return 1.0 / d->rates.links[TIER_DEVICE][TIER_HOST].alone;
}

static enum status make_chain(struct space *s, const struct link_option *links, int price,
                              struct chain *out)
{
    struct survey *v = &s->survey;
    struct link_option *priced;
    int *n_each;
    bool in_line = !s->work->device->ops->queue; /* every byte is waited for */
    double per_byte = (in_line ? 1.0 : link_prices[price]) * link_price(s->work->device);
    TRY(pool_try(&v->pool, &priced, (size_t)v->n_places * MAX_OPTIONS * sizeof(*priced)));
    TRY(pool_try(&v->pool, &n_each, (size_t)v->n_places * sizeof(*n_each)));
    memcpy(priced, links, (size_t)v->n_places * MAX_OPTIONS * sizeof(*priced));
    for (int i = 0; i < v->n_places; i++) {
        const struct options *o = &s->options[v->order[i]];
        n_each[i] = o->n;
        for (int k = 0; k < o->n; k++)
            priced[i * MAX_OPTIONS + k].cost =
                o->items[k].seconds + 2 * per_byte * (double)o->items[k].n_moved;
    }
    *out = (struct chain){.n_links = v->n_places,
                          .n_options = MAX_OPTIONS,
                          .options = priced,
                          .n_each = n_each,
                          .n_bytes = 2 * s->room[TIER_DEVICE]}; /* with `extra` */
    return chain_solve(out, &v->pool);
}

static int64_t class_bytes(const struct space *s, enum home_class c)
{
    int64_t n_bytes = 0;
    for (int p = 0; p < s->survey.n_places; p++)
        n_bytes += s->survey.places[p].n_bytes[c];
    return n_bytes;
}

/* Of an adapter: less than such a part of the room is. */
static bool is_small_class(const struct space *s, enum home_class c)
{
    enum { SMALL_SHARE = 16 };
    return class_bytes(s, c) < s->room[TIER_DEVICE] / SMALL_SHARE;
}

/* What gradients need while they come and go is worth probes where there are many. */
static enum status make_chains(struct space *s, struct place_choice *places, int64_t *peaks)
{
    int n_variants = is_small_class(s, HOME_GRADIENTS) ? 1 : 2;
    for (int g = 0; g < n_variants; g++) {
        struct link_option *links;
        TRY(make_links(s, g == 1, places, peaks, &links));
        for (int i = 0; i < s->n_prices; i++)
            TRY(make_chain(s, links, i, &s->chains[g][i]));
    }
    return OK;
}

static enum status find_staged(struct space *s, struct place_choice *places, int64_t *peaks)
{
    const bool none[HOME_CLASS_COUNT] = {false};
    TRY(probe(s, MAX_OPTIONS, none, places, peaks));
    int64_t at_home = largest(peaks, s->survey.n_phases);
    for (int c = 0; c < HOME_CLASS_COUNT; c++) {
        bool away[HOME_CLASS_COUNT] = {false};
        away[c] = true;
        if (c == HOME_GRADIENTS || class_bytes(s, (enum home_class)c) == 0)
            continue;
        TRY(probe(s, MAX_OPTIONS, away, places, peaks));
        s->staged[c] = MAX(largest(peaks, s->survey.n_phases) - at_home, (int64_t)0);
    }
    return OK;
}

static enum status make_tables(struct space *s)
{
    struct survey *v = &s->survey;
    struct place_choice *places;
    int64_t *peaks;
    size_t n_places = (size_t)v->n_places;
    TRY(pool_try(&v->pool, &places, n_places * sizeof(*places)));
    TRY(pool_try(&v->pool, &peaks, (size_t)(v->n_phases + 1) * sizeof(*peaks)));
    TRY(pool_try(&v->pool, &s->link_option, n_places * sizeof(*s->link_option)));
    TRY(pool_try(&v->pool, &s->option, n_places * sizeof(*s->option)));
    TRY(pool_try(&v->pool, &s->away, n_places * sizeof(*s->away)));
    TRY(plan_init(&s->plan, s->stage->graph, s->stage->n_micro));
    TRY(make_chains(s, places, peaks));
    return find_staged(s, places, peaks);
}

enum status space_init(struct space *s, struct workload *w, const struct kernel_times *times,
                       const struct decisions *base, const struct search_bounds *bounds,
                       const int64_t room[TIER_COUNT])
{
    struct saved_bounds saved = {.fixed_drops = bounds->fixed[EXTENT_RECOMPUTED],
                                 .fixed_moves = bounds->fixed[EXTENT_MOVED],
                                 .all_move =
                                     bounds->fixed[EXTENT_MOVED] && base->n[EXTENT_MOVED] > 0};
    *s = (struct space){.work = w,
                        .stage = workload_stage(w, STAGE_TRAIN),
                        .base = *base,
                        .bounds = *bounds,
                        .n_prices = w->device->ops->queue ? MAX_PRICES : 1};
    memcpy(s->room, room, sizeof(s->room));
    TRY(survey_init(&s->survey, w, times, base));
    s->n_blocks = s->survey.n_places - 2;
    enum status status;
    TRY_GOTO(saved_sets_find(&s->options, &s->survey, &saved, link_price(w->device)), out);
    TRY_GOTO(clocks_init(&s->clocks, &s->survey, s->options, w->device), out);
    TRY_GOTO(make_tables(s), out);
out:
    if (status != OK)
        space_release(s);
    return status;
}

void space_release(struct space *s)
{
    plan_release(&s->plan);
    survey_release(&s->survey);
    *s = (struct space){0};
}

/* ---- one candidate --------------------------------------------------------------------------- */

static bool is_away(const struct space *s, const struct homes *h, int place)
{
    int64_t n = h->n_blocks;
    if (place >= s->n_blocks)
        return h->ends;
    if (h->from_first)
        return place < n;
    return (place + 1) * n / s->n_blocks > place * n / s->n_blocks;
}

/* Then probes without any are what needs go by; else those with all of them, less what is away. */
static bool all_gradients_away(const struct space *s, const struct candidate *c)
{
    const struct homes *gradients = &c->homes[HOME_GRADIENTS];
    return gradients->n_blocks == s->n_blocks && gradients->ends && s->chains[1][0].choices;
}

/* Bytes that are in each tier whatever is saved. */
static void place_homes(struct space *s, const struct candidate *c, int64_t n_bytes[TIER_COUNT])
{
    n_bytes[TIER_DEVICE] = s->survey.storage_bytes[TIER_DEVICE];
    n_bytes[TIER_HOST] = s->survey.host_bytes;
    n_bytes[TIER_DISK] = 0;
    for (int p = 0; p < s->survey.n_places; p++) {
        for (int h = 0; h < HOME_CLASS_COUNT; h++) {
            int64_t n = s->survey.places[p].n_bytes[h];
            enum extent e = home_extent((enum home_class)h);
            s->away[p][h] = n > 0 && is_away(s, &c->homes[h], p);
            if (!s->away[p][h])
                continue;
            n_bytes[decisions_tier(&s->base, e, p, s->n_blocks)] += n;
            if (h != HOME_GRADIENTS || !all_gradients_away(s, c))
                n_bytes[TIER_DEVICE] -= n;
        }
    }
}

static bool any_away(const struct homes *h)
{
    return h->n_blocks > 0 || h->ends;
}

/* With its homes in place, which are at_home[] bytes. */
static bool choose_sets(struct space *s, const struct candidate *c,
                        const int64_t at_home[TIER_COUNT])
{
    int64_t n_bytes[TIER_COUNT];
    memcpy(n_bytes, at_home, sizeof(n_bytes));
    const struct chain *chain = &s->chains[all_gradients_away(s, c)][c->price];
    int64_t left = s->room[TIER_DEVICE] - n_bytes[TIER_DEVICE] - 2 * c->ring_bytes + c->extra;
    for (int h = 0; h < HOME_CLASS_COUNT; h++)
        left -= any_away(&c->homes[h]) ? s->staged[h] : 0;
    if (!chain_choose(chain, left, s->link_option))
        return false;
    for (int i = 0; i < s->survey.n_places; i++) {
        int p = s->survey.order[i];
        s->option[p] = s->link_option[i];
        n_bytes[decisions_tier(&s->base, EXTENT_MOVED, p, s->n_blocks)] +=
            s->options[p].items[s->option[p]].n_moved;
    }
    return n_bytes[TIER_HOST] <= s->room[TIER_HOST] && n_bytes[TIER_DISK] <= s->room[TIER_DISK];
}

bool space_expand(struct space *s, const struct candidate *c)
{
    int64_t n_bytes[TIER_COUNT];
    place_homes(s, c, n_bytes);
    return choose_sets(s, c, n_bytes);
}

double space_estimate(const struct space *s, const struct candidate *c)
{
    const struct outline o = {.option = s->option,
                              .away = (const bool(*)[HOME_CLASS_COUNT])s->away,
                              .ring_bytes = c->ring_bytes,
                              .decisions = &s->base};
    return clocks_step(&s->clocks, &o);
}

/* For reports: how many blocks, and one more for what belongs to none. */
static int count_away(const struct space *s, enum home_class h)
{
    int n = 0;
    for (int p = 0; p < s->n_blocks; p++)
        n += s->away[p][h];
    return n + (s->away[s->n_blocks][h] || s->away[s->n_blocks + 1][h]);
}

struct decisions space_decisions(const struct space *s, const struct candidate *c,
                                 struct place_choice *places)
{
    struct decisions d = s->base;
    d.ring_bytes = c->ring_bytes;
    d.places = places;
    d.n_places = s->survey.n_places;
    d.n[EXTENT_WEIGHTS] = count_away(s, HOME_WEIGHTS);
    d.n[EXTENT_STATES] = count_away(s, HOME_STATES);
    d.n[EXTENT_GRADIENTS] = count_away(s, HOME_GRADIENTS);
    d.n[EXTENT_MOVED] = d.n[EXTENT_RECOMPUTED] = 0;
    for (int p = 0; p < d.n_places; p++) {
        const struct option *o = &s->options[p].items[s->option[p]];
        places[p].saved = &o->set;
        memcpy(places[p].away, s->away[p], sizeof(places[p].away));
        d.n[EXTENT_MOVED] += o->n_moved > 0;
        d.n[EXTENT_RECOMPUTED] += o->seconds > s->options[p].items[0].seconds;
    }
    d.n[EXTENT_MOVED] = MIN(d.n[EXTENT_MOVED], s->n_blocks + 1);
    return d;
}

/* ---- the grid -------------------------------------------------------------------------------- */

/* Numbers of blocks whose part is away: none, all, and eighths nearer to both than to half. */
static int home_counts(const struct space *s, int counts[8])
{
    static const int eighths[] = {0, 1, 2, 4, 6, 7, 8};
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(eighths); i++) {
        int count = s->n_blocks * eighths[i] / 8;
        if (n == 0 || counts[n - 1] != count)
            counts[n++] = count;
    }
    return n;
}

/* The homes of a class that are looked at; one where there is nothing to choose. */
static int list_homes(const struct space *s, enum home_class c, struct homes out[16])
{
    int counts[8] = {0}, n = 0, n_counts = home_counts(s, counts);
    bool settled = !space_is_open(s, c), away = s->base.n[home_extent(c)] > 0;
    if (settled || class_bytes(s, c) == 0) {
        out[0] =
            (struct homes){.n_blocks = settled && away ? s->n_blocks : 0, .ends = settled && away};
        return 1;
    }
    bool is_small = is_small_class(s, c);
    for (int ends = 0; ends < 2; ends++) {
        for (int i = 0; i < n_counts; i++) {
            bool is_end = counts[i] == 0 || counts[i] == s->n_blocks;
            if (!is_end && (is_small || (c == HOME_GRADIENTS && counts[i] != s->n_blocks / 2)))
                continue; /* none, half, all: steps find the rest */
            out[n++] = (struct homes){.n_blocks = counts[i], .ends = ends == 1};
        }
    }
    return n;
}

static enum status visit_rings(struct space *s, struct candidate *c,
                               enum status (*visit)(void *user, const struct candidate *c),
                               void *user)
{
    /* Where copies are waited for, a ring has no use: only the last, of nothing. */
    bool waits = !s->work->device->ops->queue && !decisions_use_disk(&s->base);
    size_t first = waits ? ARRAY_LEN(ring_parts) - 1 : 0;
    int64_t n_bytes[TIER_COUNT];
    place_homes(s, c, n_bytes);
    if (n_bytes[TIER_HOST] > s->room[TIER_HOST] || n_bytes[TIER_DISK] > s->room[TIER_DISK])
        return OK;
    for (size_t r = first; r < ARRAY_LEN(ring_parts); r++) {
        c->ring_bytes = s->room[TIER_DEVICE] / ring_parts[r];
        for (c->price = 0; c->price < s->n_prices; c->price++) {
            if (!choose_sets(s, c, n_bytes))
                continue;
            c->estimate = space_estimate(s, c);
            TRY(visit(user, c));
        }
    }
    return OK;
}

enum status space_visit(struct space *s, int64_t extra,
                        enum status (*visit)(void *user, const struct candidate *c), void *user)
{
    struct homes lists[HOME_CLASS_COUNT][16];
    int n[HOME_CLASS_COUNT];
    for (int h = 0; h < HOME_CLASS_COUNT; h++)
        n[h] = list_homes(s, (enum home_class)h, lists[h]);
    for (int w = 0; w < n[HOME_WEIGHTS]; w++) {
        for (int m = 0; m < n[HOME_STATES]; m++) {
            for (int g = 0; g < n[HOME_GRADIENTS]; g++) {
                struct candidate c = {.homes = {lists[HOME_WEIGHTS][w], lists[HOME_STATES][m],
                                                lists[HOME_GRADIENTS][g]},
                                      .extra = extra};
                TRY(visit_rings(s, &c, visit, user));
            }
        }
    }
    return OK;
}
