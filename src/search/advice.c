#include "search/advice.h"

#include <stdio.h>

#include "base/machine.h"

#define FIRST_S 3.0 /* of computing: looking for a remedy, */
#define MORE_S  1.5 /* for more of them, */
#define PRICE_S 6.0 /* and for how fast they are */

enum { N_SURE = 32 }; /* plans that are made however long they take */

struct search {
    const struct variants *x;
    int64_t limit;
    double deadline;
    enum tier tier;
    int n_planned;
    int n_sets; /* of changes that were found to be remedies */
    struct advice *out;
};

static bool is_late(struct search *s)
{
    return s->n_planned++ >= N_SURE && thread_s() > s->deadline;
}

/* Plans it, unless it is clear without: that rules out whatever does not save what there is most
 * of. */
static bool fits(struct search *s, struct remedy *r)
{
    if (r->variant.way == WAY_MORE) {
        bool is_there = s->x->plan(s->x->user, &r->variant, r->needs);
        r->n_bytes = r->needs[s->tier];
        return is_there;
    }
    r->n_bytes = s->x->least(s->x->user, &r->variant);
    if (r->n_bytes <= s->limit) {
        if (is_late(s) || !s->x->plan(s->x->user, &r->variant, r->needs))
            return false;
        r->n_bytes = r->needs[s->tier];
    }
    s->out->least = MIN(s->out->least, r->n_bytes);
    return r->n_bytes <= s->limit;
}

/* Another remedy asks for no more of anything. */
static bool is_needless(const struct search *s, const struct variant *v)
{
    for (int i = 0; i < s->out->n; i++) {
        const struct variant *r = &s->out->remedies[i].variant;
        if (r->way == v->way && (r->changes & ~v->changes) == 0 && r->release <= v->release &&
            r->n_parts <= v->n_parts)
            return true;
    }
    return false;
}

/* In the fewest parts of the batch with which it fits, if it does in the most. */
static bool fits_in_parts(struct search *s, struct remedy *r)
{
    struct remedy fewer = *r;
    r->variant.n_parts = s->x->batch;
    if (r->variant.n_parts == 1 || is_needless(s, &r->variant) || !fits(s, r))
        return false;
    for (int64_t n = 2; n < s->x->batch; n++) {
        fewer.variant.n_parts = n;
        if (s->x->batch % n == 0 && fits(s, &fewer)) {
            *r = fewer;
            break;
        }
    }
    return true;
}

/* By itself, or with more let go; where letting go does not help, it does not fit by itself. */
static bool fits_whole(struct search *s, struct remedy *r)
{
    struct remedy plain = *r;
    r->variant.release = s->x->may_release;
    if (!fits(s, r))
        return false;
    if (s->x->may_release && fits(s, &plain))
        *r = plain;
    return true;
}

/* The mildest way that changes fit: whole, or in smaller micro-batches. */
static bool fits_somehow(struct search *s, struct remedy *r)
{
    return fits_whole(s, r) ? !is_needless(s, &r->variant) : fits_in_parts(s, r);
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
    s->out->remedies[s->out->n++] = *r;
    s->deadline = MIN(s->deadline, thread_s() + MORE_S);
}

static bool try_set(struct search *s, unsigned set)
{
    struct remedy r = {.variant = {.changes = set, .n_parts = 1}};
    bool is_one = s->n_sets < MOST_REMEDIES && fits_somehow(s, &r);
    if (is_one)
        add_remedy(s, &r);
    s->n_sets += is_one;
    return is_one;
}

/* Every set of changes, from the mildest on. */
static void try_sets(struct search *s)
{
    const unsigned n_sets = 1u << s->x->n_changes;
    for (int harshness = 0; harshness <= harshness_of(s->x, n_sets - 1); harshness++) {
        for (unsigned set = 1; set < n_sets; set++) {
            if (harshness_of(s->x, set) == harshness)
                (void)try_set(s, set);
        }
    }
}

static bool try_way(struct search *s, enum advice_way way)
{
    struct remedy r = {.variant = {.n_parts = 1, .way = way}};
    bool is_one = fits_whole(s, &r);
    if (is_one)
        add_remedy(s, &r);
    return is_one;
}

/* What another machine or another kind of training would do, where nothing less does. */
static void try_ways(struct search *s, bool fits_as_it_is)
{
    (void)try_way(s, WAY_MORE);
    if (fits_as_it_is)
        return;
    (void)try_way(s, WAY_HOST);
    (void)try_way(s, WAY_DISK);
    if (!try_way(s, WAY_LORA))
        (void)try_way(s, WAY_QLORA);
}

/* ---- ranking --------------------------------------------------------------------------------- */

/* What is asked for in exchange: more for other losses than for memory. */
static int cost_of(const struct variants *x, const struct variant *v)
{
    enum { SAME_LOSSES, SAME_SUMS, OTHER_NUMERICS };
    int most = harshness_of(x, (1u << x->n_changes) - 1);
    if (v->way >= WAY_LORA)
        return OTHER_NUMERICS + most + (int)v->way;
    int harshness = harshness_of(x, v->changes) + (v->n_parts > 1 ? x->harshness_of_parts : 0);
    if (harshness > 0)
        return OTHER_NUMERICS + harshness;
    return v->n_parts > 1 ? SAME_SUMS : SAME_LOSSES;
}

static bool costs_less(const struct variants *x, const struct remedy *a, const struct remedy *b)
{
    int one = cost_of(x, &a->variant), other = cost_of(x, &b->variant);
    return one != other ? one < other : a->units_s > b->units_s;
}

/* Those that are alike stay in their order. */
static void rank(const struct variants *x, struct advice *a)
{
    for (int i = 1; i < a->n; i++) {
        const struct remedy r = a->remedies[i];
        int at = i;
        for (; at > 0 && costs_less(x, &r, &a->remedies[at - 1]); at--)
            a->remedies[at] = a->remedies[at - 1];
        a->remedies[at] = r;
    }
}

/* One that does not fit as it would run is none. */
static void price(struct search *s)
{
    struct advice *a = s->out;
    int n = 0;
    s->deadline = thread_s() + PRICE_S;
    for (int i = 0; i < a->n; i++) {
        if (thread_s() > s->deadline || s->x->price(s->x->user, &a->remedies[i]))
            a->remedies[n++] = a->remedies[i];
    }
    a->n = n;
}

static enum memory_class largest_part(const struct forecast *f)
{
    int most = MEMORY_WEIGHTS;
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        most = f->breakdown[c] > f->breakdown[most] ? c : most;
    return (enum memory_class)most;
}

static void describe(const struct variants *x, struct remedy *r)
{
    struct str text = {0};
    x->describe(x->user, r, &text);
    (void)snprintf(r->text, sizeof(r->text), "%s", str_text(&text));
    str_release(&text);
}

void advice_find(const struct variants *x, const struct forecast *now, enum tier tier,
                 int64_t n_bytes, struct advice *out)
{
    struct search s = {
        .x = x, .limit = n_bytes, .deadline = thread_s() + FIRST_S, .tier = tier, .out = out};
    *out = (struct advice){.most = largest_part(now), .least = now->budget.needs[tier]};
    out->most_bytes = now->breakdown[out->most];
    bool fits_as_it_is = try_set(&s, 0) && out->remedies[0].variant.n_parts == 1;
    if (x->has_ways)
        try_ways(&s, fits_as_it_is);
    try_sets(&s);
    rank(x, out);
    if (x->price) {
        price(&s); /* in that order, as long as there is time */
        rank(x, out);
    }
    for (int i = 0; i < out->n; i++)
        describe(x, &out->remedies[i]);
}
