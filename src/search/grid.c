/* grid.c: the candidates of a space, each with its estimate.
 *
 * Combinations of homes are what the threads of a team share; what one finds in a combination
 * depends on nothing else, and all of it is visited in the order of the combinations.
 */
#include <string.h>

#include "base/team.h"
#include "search/space_internal.h"

/* Rings are between these parts of what the device has for the plan, or nothing. */
enum { LARGEST_RING = 4, SMALLEST_RING = 64 };

/* What a thread has found so far. */
struct walker {
    struct pool pool;
    struct space space; /* with the thread's candidate at hand */
    VEC(struct candidate) found;
    enum status status;
};

/* Of a combination of homes: which of the candidates of a walker. */
struct stretch {
    int walker;
    size_t first, n;
};

enum { MAX_HOMES = 16 };

struct grid {
    struct homes homes[HOME_CLASS_COUNT][MAX_HOMES];
    int n_homes[HOME_CLASS_COUNT];
    int64_t extra;
    struct walker walkers[SEARCH_THREADS];
    struct stretch *stretches; /* per combination */
};

/* ---- what is looked at ----------------------------------------------------------------------- */

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
static int list_homes(const struct space *s, enum home_class c, struct homes out[MAX_HOMES])
{
    int counts[8] = {0}, n = 0, n_counts = home_counts(s, counts);
    bool settled = !space_is_open(s, c), away = s->base.n[home_extent(c)] > 0;
    if (settled || space_class_bytes(s, c) == 0) {
        out[0] =
            (struct homes){.n_blocks = settled && away ? s->n_blocks : 0, .ends = settled && away};
        return 1;
    }
    bool is_small = space_is_small_class(s, c);
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

/* The next smaller ring that is looked at: powers of two and what is between them. They are the
 * same for all budgets, so that a larger one has what a smaller one had. */
static int64_t next_ring(int64_t n_bytes)
{
    int64_t power = 1;
    while (2 * power < n_bytes)
        power *= 2;
    return n_bytes > power + power / 2 ? power + power / 2 : power;
}

/* ---- one combination of homes ---------------------------------------------------------------- */

static enum status walk_ring(struct walker *x, struct candidate *c,
                             const int64_t at_home[TIER_COUNT])
{
    struct space *s = &x->space;
    const size_t n_bytes = (size_t)s->survey.n_places * sizeof(*s->option);
    bool is_first = true;
    for (c->price = 0; c->price < s->n_prices; c->price++) {
        if (!space_choose_sets(s, c, at_home))
            continue;
        if (!is_first && memcmp(s->option, s->option_before, n_bytes) == 0)
            continue; /* the same for another price */
        memcpy(s->option_before, s->option, n_bytes);
        is_first = false;
        c->estimate = space_estimate(s, c);
        TRY(vec_push(&x->found, *c));
    }
    return OK;
}

static bool has_room(struct space *s, struct candidate *c, const int64_t at_home[TIER_COUNT],
                     int64_t ring_bytes)
{
    c->price = 0;
    c->ring_bytes = ring_bytes;
    return space_choose_sets(s, c, at_home);
}

/* Near the least budget the ring is what memory is left for: about as much as there seems to be
 * where that is less than any budget's largest, else 0. */
static int64_t widest_ring(struct space *s, struct candidate *c, const int64_t at_home[TIER_COUNT])
{
    int64_t low = 0, high = s->room[TIER_DEVICE] / LARGEST_RING;
    if (has_room(s, c, at_home, high) || !has_room(s, c, at_home, 0))
        return 0;
    while (high - low > s->room[TIER_DEVICE] / CHAIN_SLOTS + 1) {
        int64_t middle = low + (high - low) / 2;
        if (has_room(s, c, at_home, middle))
            low = middle;
        else
            high = middle;
    }
    return low - low / 8;
}

static enum status walk_rings(struct walker *x, struct candidate *c)
{
    struct space *s = &x->space;
    /* Where copies are waited for, a ring has no use: only the last, of nothing. */
    bool waits = !s->work->device->ops->queue && !decisions_use_disk(&s->base);
    const int64_t room = s->room[TIER_DEVICE];
    int64_t n_bytes[TIER_COUNT];
    space_place_homes(s, c, n_bytes);
    if (n_bytes[TIER_HOST] > s->room[TIER_HOST] || n_bytes[TIER_DISK] > s->room[TIER_DISK])
        return OK;
    int64_t widest = waits ? 0 : widest_ring(s, c, n_bytes);
    if (widest > 0) {
        c->ring_bytes = widest;
        TRY(walk_ring(x, c, n_bytes));
    }
    c->ring_bytes = room / LARGEST_RING + 1;
    while (!waits && (c->ring_bytes = next_ring(c->ring_bytes)) >= MAX(room / SMALLEST_RING, 2))
        TRY(walk_ring(x, c, n_bytes));
    c->ring_bytes = 0;
    return walk_ring(x, c, n_bytes);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static struct candidate combination(const struct grid *g, int64_t i)
{
    struct candidate c = {.extra = g->extra};
    for (int h = HOME_CLASS_COUNT; h-- > 0; i /= g->n_homes[h])
        c.homes[h] = g->homes[h][i % g->n_homes[h]];
    return c;
}

static void walk(const void *job, int64_t first, int64_t last, int thread)
{
    struct grid *g = *(struct grid *const *)job;
    struct walker *x = &g->walkers[thread];
    for (int64_t i = first; i < last && x->status == OK; i++) {
        struct candidate c = combination(g, i);
        const size_t before = x->found.n;
        x->status = walk_rings(x, &c);
        g->stretches[i] = (struct stretch){thread, before, x->found.n - before};
    }
}

static enum status open_walkers(struct grid *g, const struct space *s)
{
    for (int i = 0; i < SEARCH_THREADS; i++)
        pool_init(&g->walkers[i].pool);
    for (int i = 0; i < (s->work->team ? SEARCH_THREADS : 1); i++)
        TRY(space_share(s, &g->walkers[i].pool, &g->walkers[i].space));
    return OK;
}

static void close_walkers(struct grid *g)
{
    for (int i = 0; i < SEARCH_THREADS; i++) {
        vec_release(&g->walkers[i].found);
        pool_release(&g->walkers[i].pool);
    }
}

static enum status visit_all(const struct grid *g, int64_t n,
                             enum status (*visit)(void *user, const struct candidate *c),
                             void *user)
{
    for (int i = 0; i < SEARCH_THREADS; i++) {
        if (g->walkers[i].status != OK) /* what it was is that thread's */
            return FAIL(g->walkers[i].status, "no memory for the candidates of a search");
    }
    for (int64_t i = 0; i < n; i++) {
        const struct stretch *f = &g->stretches[i];
        for (size_t k = 0; k < f->n; k++)
            TRY(visit(user, &g->walkers[f->walker].found.items[f->first + k]));
    }
    return OK;
}

enum status space_visit(struct space *s, int64_t extra,
                        enum status (*visit)(void *user, const struct candidate *c), void *user)
{
    struct grid grid = {.extra = extra}, *g = &grid;
    int64_t n = 1;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        grid.n_homes[h] = list_homes(s, (enum home_class)h, grid.homes[h]);
        n *= grid.n_homes[h];
    }
    TRY(mem_try_array(&grid.stretches, (size_t)n, sizeof(*grid.stretches)));
    enum status status = open_walkers(&grid, s);
    if (status == OK) {
        team_run(s->work->team, n, 1, walk, &g);
        status = visit_all(&grid, n, visit, user);
    }
    close_walkers(&grid);
    mem_free(grid.stretches);
    return status;
}
