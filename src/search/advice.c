#include "search/advice.h"

#include <stdio.h>

#include "base/machine.h"

#define SEARCH_S 3.0

struct search {
    const struct variants *x;
    int64_t limit;
    double deadline;
    int64_t fitted, least; /* bytes: of the last plan that fits; of all that were looked at */
};

/* Plans it, unless it is clear without: that rules out whatever does not save what there is most
 * of. s->fitted is what the last plan that fits takes. */
static bool fits(struct search *s, const struct variant *v)
{
    int64_t n_bytes = s->x->least(s->x->user, v);
    if (n_bytes <= s->limit && (now_s() > s->deadline || !s->x->plan(s->x->user, v, &n_bytes)))
        return false;
    s->least = MIN(s->least, n_bytes);
    if (n_bytes > s->limit)
        return false;
    s->fitted = n_bytes;
    return true;
}

/* The mildest way that these changes fit: by themselves, with more let go, in smaller
 * micro-batches. The harshest of them goes first: where that does not fit, none does. */
static bool fits_somehow(struct search *s, unsigned changes, struct variant *out)
{
    const struct variant plain = {.changes = changes, .n_parts = 1};
    int64_t batch = s->x->batch;
    *out = plain;
    out->release = s->x->may_release;
    if (fits(s, out)) {
        if (fits(s, &plain))
            *out = plain;
        return true;
    }
    out->n_parts = batch;
    if (batch == 1 || !fits(s, out))
        return false;
    for (int64_t n_parts = 2; n_parts < batch; n_parts++) {
        struct variant cut = *out;
        cut.n_parts = n_parts;
        if (batch % n_parts == 0 && fits(s, &cut)) {
            *out = cut;
            return true;
        }
    }
    return true;
}

static int harshness_of(const struct variants *x, unsigned changes)
{
    int sum = 0;
    for (int i = 0; i < x->n_changes; i++)
        sum += changes >> i & 1 ? x->harshness[i] : 0;
    return sum;
}

/* Every set of changes, from the mildest on. */
static bool find(struct search *s, struct variant *out)
{
    const unsigned n_sets = 1u << s->x->n_changes;
    for (int harshness = 0; harshness <= harshness_of(s->x, n_sets - 1); harshness++) {
        for (unsigned set = 0; set < n_sets; set++) {
            if (harshness_of(s->x, set) == harshness && fits_somehow(s, set, out))
                return true;
        }
    }
    return false;
}

static enum memory_class largest_part(const struct forecast *f)
{
    int most = MEMORY_WEIGHTS;
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        most = f->breakdown[c] > f->breakdown[most] ? c : most;
    return (enum memory_class)most;
}

void advice_find(const struct variants *x, const struct forecast *now, enum tier tier,
                 int64_t n_bytes, struct advice *out)
{
    struct search s = {
        .x = x, .limit = n_bytes, .deadline = now_s() + SEARCH_S, .least = now->budget.needs[tier]};
    struct variant variant;
    *out = (struct advice){.most = largest_part(now)};
    out->most_bytes = now->breakdown[out->most];
    out->found = find(&s, &variant);
    out->n_bytes = out->found ? s.fitted : s.least;
    if (!out->found)
        return;
    struct str text = {0};
    x->describe(x->user, &variant, &text);
    (void)snprintf(out->text, sizeof(out->text), "%s", str_text(&text));
    str_release(&text);
}
