/* choice.c: of what was found, the plan that is taken, and what is said of the others. */
#include <stdio.h>
#include <string.h>

#include "search/search_internal.h"

/* Decisions that live as long as the workload. */
static enum status take(struct search *s, const struct trial *t, struct decisions *d)
{
    struct pool *pool = &s->w->pool;
    struct place_choice *places;
    search_restore(s, t);
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

void search_describe(struct search *s, struct search_report *out)
{
    *out = (struct search_report){.n_ranked = s->n_ranked, .n_emitted = s->n_emitted};
    for (int i = 0; i < s->n_best && out->n_findings < MAX_FINDINGS; i++) {
        const struct trial *t = &s->best[i];
        struct str text = {0};
        if (!is_distinct(out, t->seconds))
            continue;
        search_restore(s, t);
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
enum status search_choose(struct search *s, int n_tried, struct decisions *d, bool *found,
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
