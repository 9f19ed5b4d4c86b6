#include "engine/ahead.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "base/mem_share.h"
#include "engine/changeover.h"

enum { MOST_PLANS = 64 };

struct ahead {
    struct ahead_plan plans[MOST_PLANS]; /* the thread writes those that are not done */
    int n_plans;
    const struct engine *engine; /* while the thread runs */
    struct surroundings around;
    struct mem_share share;
    int64_t peak_bytes; /* of all threads so far */
    pthread_t thread;
    bool is_started; /* and to be joined */
    bool is_busy;    /* atomically */
};

/* A bound that is kept (mem_share.h), not an estimate: a process that plans GPT-2 1558M takes 16
 * MiB in all, 7 of them for the search; what would take more than this is not planned for. */
int64_t ahead_bytes(const struct workload *w)
{
    enum { FIXED = 4 << 20, PER_NODE = 6 << 10 };
    int64_t n_nodes = 0;
    for (int i = 0; i < w->n_stages; i++)
        n_nodes += (int64_t)w->stages[i].graph->nodes.n;
    return FIXED + n_nodes * PER_NODE;
}

enum status ahead_new(struct ahead **out)
{
    return mem_try_array(out, 1, sizeof(**out));
}

void ahead_free(struct ahead *a)
{
    if (!a)
        return;
    ahead_stop(a);
    for (int i = 0; i < a->n_plans; i++)
        pool_release(&a->plans[i].pool);
    mem_free(a);
}

/* ---- the list -------------------------------------------------------------------------------- */

static bool same_limits(const struct limits *a, const struct limits *b)
{
    return memcmp(a->n_bytes, b->n_bytes, sizeof(a->n_bytes)) == 0;
}

static struct ahead_plan *find_exact(struct ahead *a, const struct limits *limits, int64_t batch)
{
    for (int i = 0; i < a->n_plans; i++) {
        struct ahead_plan *p = &a->plans[i];
        if (p->batch == batch && same_limits(&p->limits, limits))
            return p;
    }
    if (a->n_plans == MOST_PLANS)
        return NULL;
    struct ahead_plan *p = &a->plans[a->n_plans++];
    *p = (struct ahead_plan){.limits = *limits, .batch = batch};
    pool_init(&p->pool);
    return p;
}

enum status ahead_want(struct ahead *a, const struct limits *limits, int64_t batch)
{
    BUG_ON(a->is_started);
    (void)find_exact(a, limits, batch);
    return OK;
}

enum status ahead_want_batch(struct ahead *a, const struct limits *limits, int64_t batch,
                             const struct engine_request *request, const struct config *config)
{
    BUG_ON(a->is_started);
    struct ahead_plan *p = find_exact(a, limits, batch);
    if (p) {
        p->request = request;
        p->config = config;
    }
    return OK;
}

/* Whole, or not at all. */
static enum status note(struct ahead_plan *p, const struct engine *e)
{
    pool_release(&p->pool);
    pool_init(&p->pool);
    p->is_done = false;
    TRY(decisions_keep(&e->settings.decisions, &p->pool, &p->decisions));
    memcpy(p->needs, e->forecast.budget.needs, sizeof(p->needs));
    p->step_s = e->forecast.step_s;
    p->fits = e->forecast.fits;
    p->is_done = true;
    return OK;
}

enum status ahead_keep(struct ahead *a, const struct engine *e, int64_t batch)
{
    BUG_ON(a->is_started);
    struct ahead_plan *p = find_exact(a, &e->settings.limits, batch);
    return p ? note(p, e) : OK;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* It runs when nothing else wants to: a step does not wait for it. */
static void step_back(void)
{
    const struct sched_param lowest = {0};
#ifdef SCHED_IDLE
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &lowest) == 0)
        return;
#endif
    (void)setpriority(PRIO_PROCESS, (id_t)thread_number(), 19);
}

static enum status plan_for(const struct ahead *a, struct ahead_plan *p)
{
    const struct replan r = {.limits = p->limits, .request = p->request, .config = p->config};
    struct engine next;
    TRY(engine_replan_beside(a->engine, &r, &a->around, &next));
    enum status status = note(p, &next);
    engine_discard(&next);
    return status;
}

static bool is_left(const struct ahead_plan *p, const struct engine *e)
{
    return !p->is_done && !p->failed && (p->request || p->batch == e->request.stages[0].batch);
}

static void *work(void *user)
{
    struct ahead *a = user;
    step_back();
    mem_share_enter(&a->share);
    for (int i = 0; i < a->n_plans && !mem_share_is_ended(&a->share); i++) {
        struct ahead_plan *p = &a->plans[i];
        if (is_left(p, a->engine) && plan_for(a, p) != OK)
            p->failed = !mem_share_is_ended(&a->share); /* then it is searched for when it comes */
    }
    mem_share_enter(NULL);
    __atomic_store_n(&a->is_busy, false, __ATOMIC_RELEASE);
    return NULL;
}

static bool has_work(const struct ahead *a, const struct engine *e)
{
    for (int i = 0; i < a->n_plans; i++) {
        if (is_left(&a->plans[i], e))
            return true;
    }
    return false;
}

enum status ahead_start(struct ahead *a, const struct engine *e)
{
    if (a->is_started || !has_work(a, e))
        return OK;
    a->engine = e;
    a->share = (struct mem_share){.most = ahead_bytes(&e->work)};
    surroundings_without(&a->around, e);
    /* Before it begins: it may be done before pthread_create comes back, and says so itself. */
    __atomic_store_n(&a->is_busy, true, __ATOMIC_RELAXED);
    int error = pthread_create(&a->thread, NULL, work, a);
    a->is_started = error == 0;
    if (a->is_started)
        return OK;
    __atomic_store_n(&a->is_busy, false, __ATOMIC_RELAXED);
    return FAIL(ERR_MEMORY, "no thread to plan for other budgets: %s", strerror(error));
}

/* Who waits for it waits for everything else on the machine, while it steps back for that. Where we
 * may not change it, it stays so. */
static void hurry(struct ahead *a)
{
    const struct sched_param usual = {0};
    (void)pthread_setschedparam(a->thread, SCHED_OTHER, &usual);
}

static void join(struct ahead *a)
{
    if (!a->is_started)
        return;
    hurry(a);
    (void)pthread_join(a->thread, NULL);
    a->is_started = false;
    a->peak_bytes = MAX(a->peak_bytes, a->share.peak);
}

void ahead_stop(struct ahead *a)
{
    mem_share_end(&a->share);
    join(a);
}

bool ahead_end(struct ahead *a)
{
    bool was_started = a->is_started;
    join(a);
    return was_started;
}

bool ahead_is_busy(const struct ahead *a)
{
    return __atomic_load_n(&a->is_busy, __ATOMIC_ACQUIRE);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* A limit that is open is as large as what is free: who knows how much that was. */
static bool keeps(const struct ahead_plan *p, const struct limits *limits)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t limit = limits->n_bytes[t];
        if (limit == LIMIT_OPEN ? p->limits.n_bytes[t] != LIMIT_OPEN : p->needs[t] > limit)
            return false;
    }
    return true;
}

/* Whether hardly more could be made of the budget. */
static bool is_close(const struct ahead_plan *p, int64_t limit)
{
    int64_t made_for = p->limits.n_bytes[TIER_DEVICE];
    return made_for == LIMIT_OPEN || limit == LIMIT_OPEN || limit - made_for < limit / 8;
}

const struct ahead_plan *ahead_find(const struct ahead *a, const struct limits *limits,
                                    int64_t batch, bool any)
{
    const struct ahead_plan *best = NULL;
    int64_t limit = limits->n_bytes[TIER_DEVICE];
    for (int i = 0; i < a->n_plans; i++) {
        const struct ahead_plan *p = &a->plans[i];
        if (!p->is_done || !p->fits || p->batch != batch || !keeps(p, limits))
            continue;
        if ((any || is_close(p, limit)) && (!best || p->step_s < best->step_s))
            best = p;
    }
    return best;
}

int ahead_n_done(const struct ahead *a)
{
    int n = 0;
    for (int i = 0; i < a->n_plans; i++)
        n += a->plans[i].is_done;
    return n;
}

int64_t ahead_peak_bytes(const struct ahead *a)
{
    return a->peak_bytes;
}
