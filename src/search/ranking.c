/* ranking.c: the candidates of the grid by their estimates. */
#include "search/search_internal.h"

/* What estimates cannot tell apart: a smaller ring does as well. */
static bool joins_equal(struct search *s, const struct candidate *c)
{
    for (int i = 0; i < s->n_top; i++) {
        if (s->top[i].estimate != c->estimate)
            continue;
        if (s->top[i].ring_bytes > c->ring_bytes)
            s->top[i] = *c;
        return true;
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
