/* foresee.c: while a candidate is tried, another thread tries what is likely to come next.
 *
 * It has plans and programs of its own, and decides nothing: what its programs come to is known
 * when the search comes to them (known.h), or nobody asks. So a search with it finds what it finds
 * without, in less time.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/team.h"
#include "search/search_internal.h"
#include "search/space_internal.h"

struct foresight {
    struct workload work; /* the same graphs, with plans and programs of its own */
    struct search search; /* the one that it is ahead of, as that stands */
    struct pool pool;     /* of what is at hand in it */
    atomic_bool is_over;  /* what is to be tried has been */
};

enum status foresight_new(struct foresight **out, const struct workload *w)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    pool_init(&(*out)->pool);
    enum status status = workload_twin(&(*out)->work, w);
    if (status == OK)
        return OK;
    foresight_free(*out);
    *out = NULL;
    return status;
}

void foresight_free(struct foresight *f)
{
    if (!f)
        return;
    workload_twin_release(&f->work);
    pool_release(&f->pool);
    mem_free(f);
}

void foresight_rest(struct foresight *f)
{
    if (f)
        workload_drop_programs(&f->work);
}

bool foresight_is_over(const struct foresight *f)
{
    return atomic_load(&f->is_over);
}

/* The search as it stands, on the other workload; nothing of it is the search's own. */
static enum status stand_beside(struct foresight *f, const struct search *s)
{
    struct search *x = &f->search;
    pool_release(&f->pool);
    pool_init(&f->pool);
    *x = *s;
    x->w = &f->work;
    x->ahead_of = f;
    x->foresight = NULL;
    TRY(pool_try(&f->pool, &x->places, (size_t)s->space.survey.n_places * sizeof(*x->places)));
    TRY(space_share(&s->space, &f->pool, &x->space));
    x->space.work = &f->work;
    x->space.stage = workload_stage(&f->work, STAGE_TRAIN);
    return OK;
}

/* What the two threads do. */
struct both {
    struct search *s;
    search_attempt *attempt;
    void *what;
    enum status status;
    struct foresight *f;
    struct candidate next;
    bool is_at_hand; /* the next one is: it is tried as it is */
};

/* Whatever comes of it: it was a guess. */
static enum status try_next(struct both *b)
{
    struct search *x = &b->f->search;
    double seconds = HUGE_VAL;
    int64_t slack;
    if (foresight_is_over(b->f))
        return OK;
    if (!b->is_at_hand)
        return search_try_candidate(x, &b->next, &seconds);
    return search_is_new(x, &b->next) ? search_try(x, &b->next, &seconds, &slack) : OK;
}

static void try_one(const void *job, int64_t first, int64_t last, int thread)
{
    struct both *b = *(struct both *const *)job;
    enum status ignored;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        if (i > 0) {
            ignored = try_next(b);
            (void)ignored;
            continue;
        }
        b->status = b->attempt(b->s, b->what);
        atomic_store(&b->f->is_over, true);
    }
}

enum status search_attempt_beside(struct search *s, search_attempt *attempt, void *what,
                                  const struct guess *next)
{
    struct foresight *f = s->foresight;
    if (!f || !(next->candidate || next->change) || stand_beside(f, s) != OK)
        return attempt(s, what);
    struct both both = {.s = s, .attempt = attempt, .what = what, .f = f}, *b = &both;
    both.is_at_hand = next->change != NULL;
    both.next =
        next->change ? search_apply(&f->search, next->from, next->change) : *next->candidate;
    atomic_store(&f->is_over, false);
    team_run(s->w->team, 2, 1, try_one, &b);
    if (both.status != OK) /* what it was may be the other thread's */
        return FAIL(both.status, "a plan could not be tried: %s", status_meaning(both.status));
    return OK;
}

struct chain_of_tries {
    struct candidate *c;
    double *seconds;
};

static enum status try_candidate(struct search *s, void *what)
{
    const struct chain_of_tries *x = what;
    return search_try_candidate(s, x->c, x->seconds);
}

enum status search_try_beside(struct search *s, struct candidate *c, const struct candidate *next,
                              double *seconds)
{
    struct chain_of_tries x = {c, seconds};
    return search_attempt_beside(s, try_candidate, &x, &(struct guess){.candidate = next});
}
