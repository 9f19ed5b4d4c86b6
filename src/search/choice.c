/* choice.c: of what was found, the plan that is taken, and what is said of the others. */
#include <string.h>

#include "search/likeness.h"
#include "search/search_internal.h"

/* Until those of another are asked for. */
static struct decisions decisions_of(struct search *s, const struct trial *t)
{
    search_restore(s, t);
    return space_decisions(&s->space, &t->c, s->places);
}

enum status search_take(struct search *s, const struct trial *t, struct decisions *d)
{
    const struct decisions taken = decisions_of(s, t);
    return decisions_keep(&taken, &s->w->pool, d);
}

bool search_is_runner_up(const struct search_report *r, double seconds, const struct decisions *d)
{
    bool is = r->n_findings < MAX_FINDINGS &&
              (r->n_findings == 0 || seconds <= FAR_BEHIND * r->findings[0].seconds);
    for (int i = 0; i < r->n_findings && is; i++)
        is = !decisions_are_alike(&r->findings[i].decisions, d);
    return is;
}

static enum status describe(struct search *s, const struct trial *t, struct finding *f)
{
    struct str text = {0};
    const struct decisions d = decisions_of(s, t);
    decisions_add_text(&d, s->space.n_blocks, &text);
    *f = (struct finding){.seconds = t->seconds, .text = pool_strdup(&s->w->pool, str_text(&text))};
    memcpy(f->n_bytes, t->n_bytes, sizeof(f->n_bytes));
    enum status status = str_status(&text);
    str_release(&text);
    return status == OK ? decisions_keep(&d, &s->w->pool, &f->decisions) : status;
}

enum status search_describe(struct search *s, struct search_report *out)
{
    *out = (struct search_report){
        .n_ranked = s->n_ranked, .n_emitted = s->n_emitted, .chosen = s->n_placed - 1};
    for (int i = 0; i < s->n_best; i++) {
        const struct decisions d = decisions_of(s, &s->best[i]);
        if (!search_is_runner_up(out, s->best[i].seconds, &d))
            continue;
        TRY(describe(s, &s->best[i], &out->findings[out->n_findings]));
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

/* By how much the addresses of a trial take more than its bytes, of the tiers that they do not fit;
 * all 0: they fit. */
static void read_gaps(const struct search *s, const struct trial *t, struct gaps *g)
{
    struct forecast f = {0};
    *g = (struct gaps){0};
    forecast_memory(&f, s->w, s->limits);
    for (int i = 0; i < TIER_COUNT && !f.fits; i++) {
        if (f.budget.needs[i] > f.budget.n_bytes[i])
            g->n_bytes[i] = MAX(s->w->n_bytes[i] - t->n_bytes[i], (int64_t)1);
    }
}

static bool any_gap(const struct gaps *g)
{
    bool any = false;
    for (int i = 0; i < TIER_COUNT; i++)
        any |= g->n_bytes[i] > 0;
    return any;
}

static enum status place(struct search *s, const struct trial *t, struct decisions *d,
                         struct gaps *gaps)
{
    foresight_rest(s->foresight);
    TRY(search_take(s, t, d));
    TRY(workload_decide(s->w, d));
    TRY(forecast_place(s->w, s->limits));
    s->layout_work += workload_layout_work(s->w);
    s->n_at_hand = (int64_t)s->space.stage->program->instrs.n;
    read_gaps(s, t, gaps);
    return OK;
}

enum status search_find_gaps(struct search *s, struct gaps *gaps)
{
    struct decisions d;
    return place(s, &s->best[0], &d, gaps);
}

/* Addresses of long programs that are alike take more than their bytes by much the same; but for
 * groups, whose gaps differ where they are large. */
static bool are_alike(const struct search *s, int64_t gap, int64_t room)
{
    enum { FEW = 64 }; /* a part of the room */
    return s->space.base.group <= 1 || gap < room / FEW;
}

static bool is_too_large(const struct search *s, const struct trial *t, const struct gaps *least)
{
    bool is = false;
    if (s->n_at_hand < LONG_PROGRAM)
        return false;
    for (int i = 0; i < TIER_COUNT; i++) {
        int64_t room = s->space.room[i], gap = least->n_bytes[i];
        int64_t slack = i == TIER_DEVICE ? t->slack : room - t->n_bytes[i];
        is |= gap > 0 && slack < (are_alike(s, gap, room) ? gap / 8 * 7 : gap / 2);
    }
    return is;
}

/* The least of each tier that there was not enough of. */
static void note_gaps(struct gaps *least, const struct gaps *g)
{
    for (int i = 0; i < TIER_COUNT; i++) {
        int64_t *n = &least->n_bytes[i];
        if (g->n_bytes[i] > 0)
            *n = *n > 0 ? MIN(*n, g->n_bytes[i]) : g->n_bytes[i];
    }
}

enum status search_choose(struct search *s, int n_tried, struct decisions *d, bool *found,
                          struct gaps *least)
{
    const int rank = MAX(1, MIN(s->space.bounds.rank, MAX_FINDINGS));
    struct search_report placed = {.n_findings = 0};
    int n_failed = 0;
    struct gaps gaps;
    *least = (struct gaps){0};
    s->n_placed = 0;
    while (s->n_placed < rank && s->n_placed < s->n_best && (n_failed < n_tried || s->n_placed)) {
        const struct trial *t = &s->best[s->n_placed];
        const struct decisions next = decisions_of(s, t);
        bool is_next = search_is_runner_up(&placed, t->seconds, &next);
        bool is_hopeless = n_tried < N_LAST && is_too_large(s, t, least);
        if (is_next && !is_hopeless) {
            TRY(place(s, t, d, &gaps));
            if (!any_gap(&gaps)) {
                placed.findings[s->n_placed++] =
                    (struct finding){.seconds = t->seconds, .decisions = *d};
                placed.n_findings = s->n_placed;
                continue;
            }
            note_gaps(least, &gaps);
        }
        n_failed += is_next;
        forget(s, s->n_placed);
    }
    *found = s->n_placed > 0;
    if (*found && s->n_placed < rank)
        TRY(place(s, &s->best[s->n_placed - 1], d, &gaps));
    return OK;
}
