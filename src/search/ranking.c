/* ranking.c: the candidates of the grid by their estimates. */
#include <string.h>

#include "search/search_internal.h"

/* The same homes and ring: what prices make of them differs little, and steps try others. */
static bool is_alike(const struct candidate *a, const struct candidate *b)
{
    return a->ring_bytes == b->ring_bytes && memcmp(a->homes, b->homes, sizeof(a->homes)) == 0;
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

static enum status rank(void *user, const struct candidate *c)
{
    struct search *s = user;
    int at = MIN(s->n_top, N_TOP - 1);
    s->n_ranked++;
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

enum status search_rank(struct search *s, int64_t extra)
{
    s->n_top = 0;
    return space_visit(&s->space, extra, rank, s);
}
