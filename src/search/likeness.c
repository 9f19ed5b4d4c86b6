#include "search/likeness.h"

#include <stdlib.h>

/* How much there is of each extent: outputs that are moved or made again, places that have a class
 * at home elsewhere. */
struct amounts {
    int n[EXTENT_COUNT];
};

static void add_saved(const struct saved_set *s, struct amounts *a)
{
    for (int i = 0; i < s->n_nodes; i++) {
        a->n[EXTENT_MOVED] += s->treat[i] == MOVE;
        a->n[EXTENT_RECOMPUTED] += s->treat[i] == RECOMPUTE;
    }
}

static struct amounts amounts_of(const struct decisions *d)
{
    struct amounts a = {.n = {0}};
    for (int p = 0; p < d->n_places; p++) {
        add_saved(d->places[p].saved, &a);
        for (int c = 0; c < HOME_CLASS_COUNT; c++)
            a.n[home_extent((enum home_class)c)] += d->places[p].away[c];
    }
    return a;
}

/* Is one no less than half of the other, or the difference no more than a quarter of all places? */
static bool are_near(int n, int m, int n_places)
{
    int apart = abs(n - m);
    return 2 * apart <= MAX(n, m) || 4 * apart <= n_places;
}

bool decisions_are_alike(const struct decisions *a, const struct decisions *b)
{
    const struct amounts of_a = amounts_of(a), of_b = amounts_of(b);
    bool are = a->group == b->group && a->defer_updates == b->defer_updates;
    for (int e = 0; e < EXTENT_COUNT; e++)
        are &= are_near(of_a.n[e], of_b.n[e], a->n_places) &&
               are_near(a->disk[e], b->disk[e], a->n_places);
    return are;
}
