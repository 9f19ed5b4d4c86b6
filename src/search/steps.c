/* steps.c: from the best candidate to one that differs in a single number. */
#include <stdlib.h>
#include <string.h>

#include "search/search_internal.h"

enum { MAX_NEIGHBOURS = 40 };

static int clamp(const struct search *s, int n)
{
    return MAX(0, MIN(n, s->space.n_blocks));
}

/* Candidates that differ in one number. */
static int list_neighbours(const struct search *s, const struct candidate *c,
                           struct candidate out[MAX_NEIGHBOURS])
{
    const int eighth = MAX(s->space.n_blocks / 8, 2), steps[] = {-eighth, -1, 1, eighth};
    static const double rings[] = {0.5, 0.75, 0.9, 1.1, 1.35, 2.0};
    int n = 0;
    for (int h = 0; h < HOME_CLASS_COUNT; h++) {
        if (!space_is_open(&s->space, (enum home_class)h))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            out[n] = *c;
            out[n++].homes[h].n_blocks = clamp(s, c->homes[h].n_blocks + steps[i]);
        }
        out[n] = *c;
        out[n++].homes[h].ends = !c->homes[h].ends;
        out[n] = *c;
        out[n++].homes[h].from_first = !c->homes[h].from_first;
        out[n] = *c;
        out[n++].homes[h] = (struct homes){0};
        out[n] = *c;
        out[n++].homes[h] = (struct homes){.n_blocks = s->space.n_blocks, .ends = true};
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

/* Those that are worth a try are left. What a ring is worth depends on which copies happen to meet:
 * no estimate says that. */
static int keep_likely(struct candidate *list, int n, const struct candidate *from)
{
    int n_kept = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].ring_bytes != from->ring_bytes ||
            list[i].estimate <= (1 + DOUBT) * from->estimate)
            list[n_kept++] = list[i];
    }
    return n_kept;
}

/* In the order of their estimates, until one is better. */
enum status search_step(struct search *s, struct candidate *at, double *seconds_at, bool *improved)
{
    struct candidate list[MAX_NEIGHBOURS];
    const struct candidate from = *at;
    const double best = *seconds_at;
    int n = list_neighbours(s, &from, list), n_open = 0;
    *improved = false;
    for (int i = 0; i < n; i++) {
        if (candidates_are_same(&list[i], &from) || !space_expand(&s->space, &list[i]))
            continue;
        list[n_open] = list[i];
        list[n_open].estimate = space_estimate(&s->space, &list[i]);
        n_open++;
    }
    s->n_ranked += n_open;
    qsort(list, (size_t)n_open, sizeof(*list), by_estimate);
    n = keep_likely(list, n_open, &from);
    for (int i = 0; i < n && s->n_emitted < s->most_emitted && !*improved; i++) {
        double seconds;
        foresight_at(s, &(struct to_try){.candidates = list, .n = (size_t)n}, (size_t)i);
        TRY(search_try_candidate(s, &list[i], &seconds));
        *improved = seconds < (1 - IMPROVEMENT) * best;
        if (!*improved)
            continue;
        *seconds_at = seconds;
        for (int k = 0; k < s->n_best; k++) {
            if (s->best[k].seconds == seconds)
                *at = s->best[k].c;
        }
    }
    foresight_end(s->foresight);
    return OK;
}
