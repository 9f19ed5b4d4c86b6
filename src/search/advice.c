#include "search/advice.h"

#include <stdio.h>

#include "base/machine.h"

#define FIRST_S 3.0 /* of computing: looking for a remedy, */
#define MORE_S  1.5 /* and for more of them */

enum { N_SURE = 32 }; /* plans that are made however long they take */

struct search {
    const struct variants *x;
    int64_t limit;
    double deadline;
    int n_planned;
    struct advice *out;
};

static bool is_late(struct search *s)
{
    return s->n_planned++ >= N_SURE && thread_s() > s->deadline;
}

/* Plans it, unless it is clear without: that rules out whatever does not save what there is most
 * of. */
static bool fits(struct search *s, const struct variant *v, int64_t *n_bytes)
{
    *n_bytes = s->x->least(s->x->user, v);
    if (*n_bytes <= s->limit && (is_late(s) || !s->x->plan(s->x->user, v, n_bytes)))
        return false;
    s->out->least = MIN(s->out->least, *n_bytes);
    return *n_bytes <= s->limit;
}

/* Another remedy asks for no more of anything. */
static bool is_needless(const struct search *s, const struct variant *v)
{
    for (int i = 0; i < s->out->n; i++) {
        const struct variant *r = &s->out->remedies[i].variant;
        if ((r->changes & ~v->changes) == 0 && r->release <= v->release && r->n_parts <= v->n_parts)
            return true;
    }
    return false;
}

/* In the fewest parts of the batch with which it fits, if it does in the most. */
static bool fits_in_parts(struct search *s, struct remedy *r)
{
    struct variant *v = &r->variant;
    v->n_parts = s->x->batch;
    if (v->n_parts == 1 || is_needless(s, v) || !fits(s, v, &r->n_bytes))
        return false;
    int64_t least = r->n_bytes;
    for (v->n_parts = 2; v->n_parts < s->x->batch; v->n_parts++) {
        if (s->x->batch % v->n_parts == 0 && fits(s, v, &r->n_bytes))
            return true;
    }
    r->n_bytes = least;
    return true;
}

/* The mildest way that these changes fit: by themselves, with more let go, in smaller
 * micro-batches. Where letting go does not help, they do not fit by themselves. */
static bool fits_somehow(struct search *s, unsigned changes, struct remedy *r)
{
    int64_t n_bytes;
    const struct variant plain = {.changes = changes, .n_parts = 1};
    r->variant = plain;
    r->variant.release = s->x->may_release;
    if (!fits(s, &r->variant, &r->n_bytes))
        return fits_in_parts(s, r);
    if (s->x->may_release && fits(s, &plain, &n_bytes)) {
        r->variant = plain;
        r->n_bytes = n_bytes;
    }
    return !is_needless(s, &r->variant);
}

static int harshness_of(const struct variants *x, unsigned changes)
{
    int sum = 0;
    for (int i = 0; i < x->n_changes; i++)
        sum += changes >> i & 1 ? x->harshness[i] : 0;
    return sum;
}

static void add_remedy(struct search *s, const struct remedy *r)
{
    struct str text = {0};
    struct remedy *new = &s->out->remedies[s->out->n++];
    *new = *r;
    s->x->describe(s->x->user, &r->variant, &text);
    (void)snprintf(new->text, sizeof(new->text), "%s", str_text(&text));
    str_release(&text);
    s->deadline = MIN(s->deadline, thread_s() + MORE_S);
}

/* Every set of changes, from the mildest on. */
static void find(struct search *s)
{
    const unsigned n_sets = 1u << s->x->n_changes;
    for (int harshness = 0; harshness <= harshness_of(s->x, n_sets - 1); harshness++) {
        for (unsigned set = 0; set < n_sets && s->out->n < MOST_REMEDIES; set++) {
            struct remedy r;
            if (harshness_of(s->x, set) == harshness && fits_somehow(s, set, &r))
                add_remedy(s, &r);
        }
    }
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
    struct search s = {.x = x, .limit = n_bytes, .deadline = thread_s() + FIRST_S, .out = out};
    *out = (struct advice){.most = largest_part(now), .least = now->budget.needs[tier]};
    out->most_bytes = now->breakdown[out->most];
    find(&s);
}
