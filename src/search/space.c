#include "search/space.h"

#include <math.h>
#include <string.h>

#include "search/probes.h"
#include "search/space_internal.h"

/* What a byte on the link counts for, in units of what it takes on an idle link. */
static const double link_prices[MAX_PRICES] = {0.02, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 1e9};
/* Where every byte is waited for it counts for that, or more where there is little room for it. */
static const double in_line_prices[] = {1.0, 3.0, 10.0, 1e9};

bool homes_are_same(const struct candidate *a, const struct candidate *b)
{
    bool same = true;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        const struct homes *x = &a->homes[h], *y = &b->homes[h];
        same &= x->n_blocks == y->n_blocks && x->from_first == y->from_first && x->ends == y->ends;
    }
    return same;
}

bool candidates_are_same(const struct candidate *a, const struct candidate *b)
{
    return homes_are_same(a, b) && a->ring_bytes == b->ring_bytes && a->extra == b->extra &&
           a->price == b->price;
}

bool space_is_open(const struct space *s, enum home_class c)
{
    return !s->bounds.fixed[home_extent(c)];
}

int64_t space_class_bytes(const struct space *s, enum home_class c)
{
    int64_t n_bytes = 0;
    for (int p = 0; p < s->survey.n_places; p++)
        n_bytes += s->survey.places[p].n_bytes[c];
    return n_bytes;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Does what is on disk pass through the host? */
static bool passes_host(const struct space *s)
{
    return decisions_use_disk(&s->base) && !device_host_reaches(s->work->device, TIER_DEVICE);
}

/* Bytes of the host that a place's option takes at least: all that is moved there, or of what goes
 * to disk the largest tensor, which passes as a whole. */
static int64_t least_of_host(const struct space *s, int place, const struct option *o)
{
    if (decisions_tier(&s->base, EXTENT_MOVED, place, s->n_blocks) == TIER_HOST)
        return o->n_moved;
    return passes_host(s) ? o->largest_moved : 0;
}

static double link_price(const struct device *d)
{
    return 1.0 / d->rates.links[TIER_DEVICE][TIER_HOST].alone;
}

static enum status solve_chain(struct space *s, const struct link_option *links, int price,
                               struct chain *out)
{
    const struct survey *v = &s->survey;
    struct link_option *priced;
    int *n_each;
    bool in_line = !s->work->device->ops->queue;
    double per_byte =
        (in_line ? in_line_prices[price] : link_prices[price]) * link_price(s->work->device);
    TRY(pool_try(&s->tables, &priced, (size_t)v->n_places * MAX_OPTIONS * sizeof(*priced)));
    TRY(pool_try(&s->tables, &n_each, (size_t)v->n_places * sizeof(*n_each)));
    memcpy(priced, links, (size_t)v->n_places * MAX_OPTIONS * sizeof(*priced));
    for (int i = 0; i < v->n_places; i++) {
        const struct options *o = &s->options[v->order[i]];
        n_each[i] = o->n;
        for (int k = 0; k < o->n; k++) {
            const struct option *x = &o->items[k];
            bool fits = v->host_bytes + least_of_host(s, v->order[i], x) <= s->room[TIER_HOST];
            double cost = x->seconds + 2 * per_byte * (double)x->n_moved;
            priced[i * MAX_OPTIONS + k].cost = fits ? cost : HUGE_VAL;
        }
    }
    *out = (struct chain){.n_links = v->n_places,
                          .n_options = MAX_OPTIONS,
                          .options = priced,
                          .n_each = n_each,
                          .n_bytes = 2 * s->room[TIER_DEVICE]}; /* with `extra` */
    return chain_solve(out, &s->tables);
}

bool space_is_small_class(const struct space *s, enum home_class c)
{
    enum { SMALL_SHARE = 16 };
    return space_class_bytes(s, c) < s->room[TIER_DEVICE] / SMALL_SHARE;
}

/* What gradients need while they come and go is worth probes where there are many. */
static enum status make_links(struct space *s)
{
    int n_variants = space_is_small_class(s, HOME_GRADIENTS) ? 1 : 2;
    for (int g = 0; g < n_variants; g++)
        TRY(probe_needs(s, g == 1, &s->links[g]));
    return OK;
}

static enum status solve_chains(struct space *s)
{
    for (int g = 0; g < 2 && s->links[g]; g++) {
        for (int i = 0; i < s->n_prices; i++)
            TRY(solve_chain(s, s->links[g], i, &s->chains[g][i]));
    }
    return OK;
}

static enum status make_tables(struct space *s)
{
    struct survey *v = &s->survey;
    size_t n_places = (size_t)v->n_places;
    TRY(pool_try(&v->pool, &s->link_option, n_places * sizeof(*s->link_option)));
    TRY(pool_try(&v->pool, &s->option, n_places * sizeof(*s->option)));
    TRY(pool_try(&v->pool, &s->option_before, n_places * sizeof(*s->option_before)));
    TRY(pool_try(&v->pool, &s->away, n_places * sizeof(*s->away)));
    TRY(plan_init(&s->plan, s->stage->graph, s->stage->n_micro));
    TRY(make_links(s));
    TRY(solve_chains(s));
    return probe_staged(s);
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
                        .n_prices =
                            w->device->ops->queue ? MAX_PRICES : (int)ARRAY_LEN(in_line_prices)};
    memcpy(s->room, room, sizeof(s->room));
    TRY(survey_init(&s->survey, w, times, base));
    pool_init(&s->tables);
    s->n_instrs = (int64_t)s->stage->program->instrs.n;
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

enum status space_restart(struct space *s, const struct decisions *base,
                          const struct search_bounds *bounds, const int64_t room[TIER_COUNT])
{
    s->base = *base;
    s->bounds = *bounds;
    s->clocks.survey = &s->survey; /* the space may be at another address */
    memcpy(s->room, room, sizeof(s->room));
    pool_release(&s->tables);
    pool_init(&s->tables);
    enum status status = solve_chains(s);
    if (status != OK)
        space_release(s);
    return status;
}

enum status space_share(const struct space *s, struct pool *pool, struct space *out)
{
    const size_t n = (size_t)s->survey.n_places;
    *out = *s;
    TRY(pool_try(pool, &out->link_option, n * sizeof(*out->link_option)));
    TRY(pool_try(pool, &out->option, n * sizeof(*out->option)));
    TRY(pool_try(pool, &out->option_before, n * sizeof(*out->option_before)));
    TRY(pool_try(pool, &out->away, n * sizeof(*out->away)));
    return clocks_share(&s->clocks, pool, &out->clocks);
}

void space_release(struct space *s)
{
    plan_release(&s->plan);
    pool_release(&s->tables);
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

void space_place_homes(struct space *s, const struct candidate *c, int64_t n_bytes[TIER_COUNT])
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

/* Of the host, for what is on its way from disk to the device, and back: each is as far ahead, or
 * behind, as a ring, and at least one tensor is whole. */
static int64_t halfway_bytes(const struct space *s, const struct candidate *c)
{
    int64_t n_bytes = passes_host(s) ? 2 * c->ring_bytes : 0;
    for (int p = 0; p < s->survey.n_places; p++) {
        if (decisions_tier(&s->base, EXTENT_MOVED, p, s->n_blocks) == TIER_DISK)
            n_bytes = MAX(n_bytes, least_of_host(s, p, &s->options[p].items[s->option[p]]));
    }
    return n_bytes;
}

bool space_choose_sets(struct space *s, const struct candidate *c,
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
    return n_bytes[TIER_HOST] + halfway_bytes(s, c) <= s->room[TIER_HOST] &&
           n_bytes[TIER_DISK] <= s->room[TIER_DISK];
}

bool space_expand(struct space *s, const struct candidate *c)
{
    int64_t n_bytes[TIER_COUNT];
    space_place_homes(s, c, n_bytes);
    return space_choose_sets(s, c, n_bytes);
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

/* Of one way to have homes, with nothing fetched ahead. */
static int64_t least_extra_of(struct space *s, struct candidate *c)
{
    int64_t n_bytes[TIER_COUNT], low = 0, high = 2 * s->room[TIER_DEVICE];
    space_place_homes(s, c, n_bytes);
    c->extra = high;
    if (!space_choose_sets(s, c, n_bytes))
        return INT64_MAX;
    while (high - low > s->room[TIER_DEVICE] / CHAIN_SLOTS + 1) {
        c->extra = low + (high - low) / 2;
        if (space_choose_sets(s, c, n_bytes))
            high = c->extra;
        else
            low = c->extra;
    }
    return high;
}

bool space_least_extra(struct space *s, int64_t *extra)
{
    int64_t least = INT64_MAX;
    for (unsigned away = 0; away < 1u << HOME_CLASS_COUNT; away++) {
        struct candidate c = {.price = 0};
        bool is_open = true;
        for (int h = 0; h < HOME_CLASS_COUNT; h++) {
            bool leaves = away >> h & 1;
            c.homes[h] = (struct homes){.n_blocks = leaves ? s->n_blocks : 0, .ends = leaves};
            is_open &= space_is_open(s, (enum home_class)h) ||
                       leaves == (s->base.n[home_extent((enum home_class)h)] > 0);
        }
        for (c.price = 0; is_open && c.price < s->n_prices; c.price++)
            least = MIN(least, least_extra_of(s, &c));
    }
    *extra = least;
    return least < INT64_MAX;
}
