/* choice.c: of what was found, the plan that is taken, and what is said of the others. */
#include <string.h>

#include "search/search_internal.h"

enum status search_take(struct search *s, const struct trial *t, struct decisions *d)
{
    search_restore(s, t);
    const struct decisions taken = space_decisions(&s->space, &t->c, s->places);
    return decisions_keep(&taken, &s->w->pool, d);
}

/* Plans are told apart by their time. */
static bool is_distinct(double seconds, double from)
{
    return seconds > 1.002 * from;
}

static enum status describe(struct search *s, const struct trial *t, struct finding *f)
{
    struct str text = {0};
    search_restore(s, t);
    struct decisions d = space_decisions(&s->space, &t->c, s->places);
    decisions_add_text(&d, s->space.n_blocks, &text);
    *f = (struct finding){.seconds = t->seconds, .text = pool_strdup(&s->w->pool, str_text(&text))};
    memcpy(f->n_bytes, t->n_bytes, sizeof(f->n_bytes));
    enum status status = str_status(&text);
    str_release(&text);
    return status == OK ? pool_status(&s->w->pool) : status;
}

enum status search_describe(struct search *s, struct search_report *out)
{
    *out = (struct search_report){
        .n_ranked = s->n_ranked, .n_emitted = s->n_emitted, .chosen = s->n_placed - 1};
    for (int i = 0; i < s->n_best && out->n_findings < MAX_FINDINGS; i++) {
        int n = out->n_findings;
        if (n > 0 && !is_distinct(s->best[i].seconds, out->findings[n - 1].seconds))
            continue;
        TRY(describe(s, &s->best[i], &out->findings[n]));
        out->n_findings++;
    }
    return OK;
}

static void forget(struct search *s, int i)
{
    struct trial used = s->best[i];
    memmove(&s->best[i], &s->best[i + 1], (size_t)(--s->n_best - i) * sizeof(s->best[0]));
    s->best[s->n_best] = used; /* its arrays are free */
}

static enum status place(struct search *s, const struct trial *t, struct decisions *d, bool *fits)
{
    struct forecast f = {0};
    TRY(search_take(s, t, d));
    TRY(workload_decide(s->w, d));
    TRY(workload_place(s->w));
    forecast_memory(&f, s->w, s->limits);
    *fits = f.fits;
    return OK;
}

enum status search_find_gaps(struct search *s, int64_t *n_bytes)
{
    struct decisions d;
    bool fits;
    TRY(place(s, &s->best[0], &d, &fits));
    *n_bytes = fits ? 0 : s->w->n_bytes[TIER_DEVICE] - s->best[0].n_bytes[TIER_DEVICE];
    return OK;
}

bool search_has_few_gaps(const struct search *s, int64_t over)
{
    enum { FEW = 64 }; /* a part of the room */
    bool is_alike = s->space.base.group <= 1 || over < s->space.room[TIER_DEVICE] / FEW;
    return is_alike && s->space.stage->program->instrs.n >= LONG_PROGRAM;
}

static bool is_too_large(const struct search *s, const struct trial *t, int64_t over)
{
    bool is_long = s->space.stage->program->instrs.n >= LONG_PROGRAM;
    return over < INT64_MAX && is_long &&
           t->slack < (search_has_few_gaps(s, over) ? over / 8 * 7 : over / 2);
}

enum status search_choose(struct search *s, int n_tried, struct decisions *d, bool *found,
                          int64_t *over)
{
    const int rank = MAX(s->space.bounds.rank, 1);
    int n_failed = 0;
    *over = INT64_MAX;
    s->n_placed = 0;
    while (s->n_placed < rank && s->n_placed < s->n_best && (n_failed < n_tried || s->n_placed)) {
        const struct trial *t = &s->best[s->n_placed];
        bool fits = false, is_next = !s->n_placed || is_distinct(t->seconds, t[-1].seconds);
        bool is_hopeless = n_tried < N_LAST && is_too_large(s, t, *over);
        if (is_next && !is_hopeless)
            TRY(place(s, t, d, &fits));
        if (fits) {
            s->n_placed++;
            continue;
        }
        if (is_next && !is_hopeless)
            *over = MIN(*over, s->w->n_bytes[TIER_DEVICE] - t->n_bytes[TIER_DEVICE]);
        n_failed += is_next;
        forget(s, s->n_placed);
    }
    *found = s->n_placed > 0;
    if (*found && s->n_placed < rank) {
        bool fits;
        TRY(place(s, &s->best[s->n_placed - 1], d, &fits));
    }
    return OK;
}
