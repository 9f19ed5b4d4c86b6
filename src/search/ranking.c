/* ranking.c: the candidates of the grid by their estimates. */
#include <string.h>

#include "search/search_internal.h"

/* Estimates of plans that are unlike are believed that far. */
#define UNLIKE_DOUBT 0.1

/* The same homes and ring: what prices make of them differs little, and steps try others. */
static bool is_alike(const struct candidate *a, const struct candidate *b)
{
    return a->ring_bytes == b->ring_bytes && homes_are_same(a, b);
}

/* What estimates cannot tell apart: a smaller ring does as well. */
static bool replaces_equal(const struct candidate *a, const struct candidate *b)
{
    return a->estimate == b->estimate && a->ring_bytes < b->ring_bytes;
}

static void leave_out(struct search *s, int i)
{
    memmove(&s->top[i], &s->top[i + 1], (size_t)(--s->n_top - i) * sizeof(s->top[0]));
}

/* Is there one that makes it superfluous? One that it makes superfluous is left out. */
static bool joins_equal(struct search *s, const struct candidate *c)
{
    for (int i = 0; i < s->n_top; i++) {
        const struct candidate *t = &s->top[i];
        if (t->estimate != c->estimate && !is_alike(t, c))
            continue;
        if (t->estimate <= c->estimate && !replaces_equal(c, t))
            return true;
        leave_out(s, i);
        return false;
    }
    return false;
}

/* Which classes leave nothing away: bits. */
static unsigned classes_at_home(const struct candidate *c)
{
    unsigned set = 0;
    for (int h = 0; h < HOME_CLASS_COUNT; h++)
        set |= (unsigned)(c->homes[h].n_blocks == 0 && !c->homes[h].ends) << h;
    return set;
}

/* The best of those that leave the same classes at home. */
static void note_first(struct search *s, const struct candidate *c)
{
    struct candidate *first = &s->first[classes_at_home(c)];
    if (first->estimate == 0 || c->estimate < first->estimate)
        *first = *c;
}

static enum status rank(void *user, const struct candidate *c)
{
    struct search *s = user;
    int at = MIN(s->n_top, N_TOP - 1);
    s->n_ranked++;
    note_first(s, c);
    if (joins_equal(s, c))
        return OK;
    if (s->n_top == N_TOP && c->estimate >= s->top[N_TOP - 1].estimate)
        return OK;
    for (; at > 0 && s->top[at - 1].estimate > c->estimate; at--)
        s->top[at] = s->top[at - 1];
    s->top[at] = *c;
    s->n_top = MIN(s->n_top + 1, (int)N_TOP);
    return OK;
}

static int find(const struct search *s, const struct candidate *c)
{
    int i = 0;
    while (i < s->n_top && (!is_alike(&s->top[i], c) || s->top[i].price != c->price))
        i++;
    return i;
}

/* Behind the best of all come those that leave other classes at home, as a search that may not move
 * these would have them: what a freedom is worth shows only when both are at their best. */
static void put_unlike_first(struct search *s)
{
    int n = 1;
    for (int from = 1; from < s->n_top; from++) {
        const struct candidate *best = NULL;
        for (unsigned set = 0; set < N_CLASS_SETS; set++) {
            const struct candidate *c = &s->first[set];
            if (c->estimate > 0 && c->estimate < (1 + UNLIKE_DOUBT) * s->top[0].estimate &&
                set != classes_at_home(&s->top[0]) && (!best || c->estimate < best->estimate))
                best = c;
        }
        if (!best)
            return;
        const struct candidate c = *best;
        s->first[classes_at_home(&c)].estimate = 0;
        int at = MIN(find(s, &c), s->n_top - 1);
        memmove(&s->top[n + 1], &s->top[n], (size_t)(at - n) * sizeof(s->top[0]));
        s->top[n++] = c;
    }
}

enum status search_rank(struct search *s, int64_t extra)
{
    s->n_top = 0;
    memset(s->first, 0, sizeof(s->first));
    TRY(space_visit(&s->space, extra, rank, s));
    if (s->n_top > 1)
        put_unlike_first(s);
    return OK;
}
