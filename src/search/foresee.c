/* foresee.c: a thread that goes ahead of a search and tries what that is likely to try next.
 *
 * It has plans and programs of its own, and decides nothing: what its programs come to is known
 * when the search comes to them (known.h), or nobody asks. So a search with it finds what it finds
 * without, in less time. Neither waits for the other while candidates are tried: where other
 * programs have the processor that one of them was on, the other goes on.
 */
#include "search/foresee.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "search/search_internal.h"
#include "search/space_internal.h"

struct foresight {
    struct workload work; /* the same graphs, with plans and programs of its own */

    /* What there is to do: the search as it stood, and what comes next there. */
    struct search search;
    struct pool pool; /* of what is at hand in it */
    VEC(struct candidate) candidates;
    VEC(struct change) changes;
    struct trial from; /* of these */
    size_t first, n;
    size_t now;       /* of the list, what the thread is at */
    atomic_size_t at; /* and the search */
    atomic_bool is_over;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_work, ends; /* with the lock */
};

bool foresight_is_late(const struct foresight *f)
{
    return atomic_load(&f->is_over) || atomic_load(&f->at) >= f->now;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static enum status try_candidate(struct foresight *f)
{
    struct candidate c = f->candidates.items[f->now];
    double seconds;
    return search_try_candidate(&f->search, &c, &seconds);
}

static enum status try_change(struct foresight *f)
{
    struct search *s = &f->search;
    const struct candidate c = search_apply(s, &f->from, &f->changes.items[f->now]);
    double seconds = HUGE_VAL;
    int64_t slack;
    return search_is_new(s, &c) ? search_try(s, &c, &seconds, &slack) : OK;
}

static void go_ahead(struct foresight *f)
{
    for (size_t i = f->first; i < f->n && !atomic_load(&f->is_over); i++) {
        f->now = i;
        if (foresight_is_late(f))
            continue;
        enum status ignored = f->changes.n > 0 ? try_change(f) : try_candidate(f);
        (void)ignored; /* it was a guess */
    }
}

static void *work(void *user)
{
    struct foresight *f = user;
    (void)pthread_mutex_lock(&f->lock);
    while (!f->ends) {
        if (!f->has_work) {
            (void)pthread_cond_wait(&f->changed, &f->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&f->lock);
        go_ahead(f);
        (void)pthread_mutex_lock(&f->lock);
        f->has_work = false;
        (void)pthread_cond_broadcast(&f->changed);
    }
    (void)pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- what the search says -------------------------------------------------------------------- */

enum status foresight_new(struct foresight **out, const struct workload *w)
{
    struct foresight *f;
    TRY(mem_try_array(&f, 1, sizeof(*f)));
    pool_init(&f->pool);
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->changed, NULL);
    enum status status = workload_twin(&f->work, w);
    if (status == OK && pthread_create(&f->thread, NULL, work, f) != 0)
        status = FAIL(ERR_FAILED, "no thread to go ahead of a search");
    if (status == OK) {
        *out = f;
        return OK;
    }
    workload_twin_release(&f->work);
    mem_free(f);
    return status;
}

static void wait_for_rest(struct foresight *f)
{
    atomic_store(&f->is_over, true);
    (void)pthread_mutex_lock(&f->lock);
    while (f->has_work)
        (void)pthread_cond_wait(&f->changed, &f->lock);
    (void)pthread_mutex_unlock(&f->lock);
}

void foresight_free(struct foresight *f)
{
    if (!f)
        return;
    wait_for_rest(f);
    (void)pthread_mutex_lock(&f->lock);
    f->ends = true;
    (void)pthread_cond_broadcast(&f->changed);
    (void)pthread_mutex_unlock(&f->lock);
    (void)pthread_join(f->thread, NULL);
    (void)pthread_cond_destroy(&f->changed);
    (void)pthread_mutex_destroy(&f->lock);
    workload_twin_release(&f->work);
    vec_release(&f->candidates);
    vec_release(&f->changes);
    pool_release(&f->pool);
    mem_free(f);
}

void foresight_rest(struct foresight *f)
{
    if (!f)
        return;
    wait_for_rest(f);
    workload_drop_programs(&f->work);
}

void foresight_end(struct foresight *f)
{
    if (f)
        atomic_store(&f->is_over, true);
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

static enum status copy_list(struct foresight *f, const struct search *s, const struct to_try *list)
{
    const size_t n_places = (size_t)s->space.survey.n_places;
    f->candidates.n = f->changes.n = 0;
    for (size_t i = 0; i < list->n && list->candidates; i++)
        TRY(vec_push(&f->candidates, list->candidates[i]));
    for (size_t i = 0; i < list->n && list->changes; i++)
        TRY(vec_push(&f->changes, list->changes[i]));
    f->n = list->n;
    if (!list->changes)
        return OK;
    f->from = *list->from;
    TRY(pool_try(&f->pool, &f->from.option, n_places * sizeof(*f->from.option)));
    TRY(pool_try(&f->pool, &f->from.away, n_places * sizeof(*f->from.away)));
    memcpy(f->from.option, list->from->option, n_places * sizeof(*f->from.option));
    memcpy(f->from.away, list->from->away, n_places * sizeof(*f->from.away));
    return OK;
}

static bool is_at_work(struct foresight *f)
{
    (void)pthread_mutex_lock(&f->lock);
    bool is = f->has_work;
    (void)pthread_mutex_unlock(&f->lock);
    return is;
}

void foresight_at(struct search *s, const struct to_try *list, size_t i)
{
    struct foresight *f = s->foresight;
    if (!f)
        return;
    atomic_store(&f->at, i);
    if (i + 1 >= list->n || is_at_work(f))
        return;
    if (stand_beside(f, s) != OK || copy_list(f, s, list) != OK)
        return; /* without it it takes longer */
    f->first = i + 1;
    atomic_store(&f->is_over, false);
    (void)pthread_mutex_lock(&f->lock);
    f->has_work = true;
    (void)pthread_cond_broadcast(&f->changed);
    (void)pthread_mutex_unlock(&f->lock);
}
