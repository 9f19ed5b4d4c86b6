/* team.c: see team.h.
 *
 * A loop is described by fields that only the caller writes, and only while no piece of a loop is
 * left or in hand. A thread takes a piece by counting a share down; whoever got one may read the
 * description, because the loop cannot end before that piece has. So a thread that comes late, when
 * the next loop is already running, simply works for that one.
 */
#include "base/team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine.h"

enum {
    SHARE_PIECES = 16,   /* most pieces of a share: enough for the others to help with */
    LOOKS_PER_CLOCK = 32 /* looks at a flag between two looks at the clock */
};

/* How long a thread watches before it sleeps: a few times what falling asleep and being woken
 * costs. */
#define WATCH_S 100e-6
/* Where others want the processors too, watching takes time from them and from our own threads, and
 * a thread that has slept is the next to run: then threads sleep at once. Each looks now and then
 * for how much of its time it had to wait for a processor. */
#define LOOK_S  20e-3
#define CROWDED 0.05

/* The part of a loop that one thread begins with. No two touch one cache line. */
struct share {
    atomic_llong n_left; /* pieces nobody has taken; negative: none */
    char apart[120];
};

struct member {
    struct team *team;
    int index;
    pthread_t thread;
    atomic_int number; /* the system's; 0: it has not begun */
    bool crowded;
    double looked_s, delay_s; /* when it last looked, and what it saw */
};

struct team {
    int n_threads, n_started;
    struct member *members; /* [n_threads]; the first is the caller */
    struct share *shares;   /* [n_threads] */
    /* The loop. */
    team_work *work;
    const void *job;
    int64_t n, piece;
    atomic_llong n_unfinished; /* pieces */
    /* Falling asleep and being woken. */
    atomic_uint n_loops; /* begun so far: threads that wait look at it */
    atomic_bool ends;
    atomic_int n_asleep;
    atomic_bool caller_asleep;
    pthread_mutex_t lock;
    pthread_cond_t begun, finished;
};

/* ---- pieces --------------------------------------------------------------------------------- */

/* The first item of a share; that of the share behind the last is n. */
static int64_t share_first(const struct team *t, int i)
{
    return t->n / t->n_threads * i + t->n % t->n_threads * i / t->n_threads;
}

static int64_t share_pieces(const struct team *t, int i)
{
    return (share_first(t, i + 1) - share_first(t, i) + t->piece - 1) / t->piece;
}

static void wake(struct team *t, pthread_cond_t *condition)
{
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_broadcast(condition);
    (void)pthread_mutex_unlock(&t->lock);
}

/* Runs pieces of a share until none is left. */
static void work_off(struct team *t, int i_share, int thread)
{
    struct share *s = &t->shares[i_share];
    while (atomic_load_explicit(&s->n_left, memory_order_relaxed) > 0) {
        int64_t left = atomic_fetch_sub(&s->n_left, 1);
        if (left <= 0)
            return;
        int64_t end = share_first(t, i_share + 1);
        int64_t first = share_first(t, i_share) + (share_pieces(t, i_share) - left) * t->piece;
        t->work(t->job, first, MIN(first + t->piece, end), thread);
        if (atomic_fetch_sub(&t->n_unfinished, 1) == 1 && atomic_load(&t->caller_asleep))
            wake(t, &t->finished);
    }
}

static void work_off_all(struct team *t, int thread)
{
    for (int i = 0; i < t->n_threads; i++)
        work_off(t, (thread + i) % t->n_threads, thread);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct awaited {
    struct team *team;
    unsigned n_loops; /* another loop than this has begun */
};

static bool loop_begun(const struct awaited *a)
{
    return atomic_load(&a->team->n_loops) != a->n_loops;
}

static bool loop_finished(const struct awaited *a)
{
    return atomic_load(&a->team->n_unfinished) == 0;
}

static void look_around(struct member *m, double now)
{
    if (now - m->looked_s < LOOK_S)
        return;
    double delay_s = run_delay_s(thread_number());
    m->crowded = delay_s - m->delay_s > CROWDED * (now - m->looked_s);
    m->looked_s = now;
    m->delay_s = delay_s;
}

/* Watches until `there`; false: it is time to sleep. */
static bool watch(struct member *m, const struct awaited *a, bool (*there)(const struct awaited *))
{
    double start = now_s(), now = start;
    look_around(m, start);
    while (!m->crowded && now - start < WATCH_S) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (there(a))
                return true;
            relax();
        }
        now = now_s();
    }
    return there(a);
}

static void await_loop(struct member *m, unsigned n_loops)
{
    struct team *t = m->team;
    struct awaited a = {t, n_loops};
    if (watch(m, &a, loop_begun))
        return;
    (void)pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->n_asleep, 1);
    while (!loop_begun(&a))
        (void)pthread_cond_wait(&t->begun, &t->lock);
    atomic_fetch_sub(&t->n_asleep, 1);
    (void)pthread_mutex_unlock(&t->lock);
}

static void await_finish(struct member *m)
{
    struct team *t = m->team;
    struct awaited a = {.team = t};
    if (watch(m, &a, loop_finished))
        return;
    (void)pthread_mutex_lock(&t->lock);
    atomic_store(&t->caller_asleep, true);
    while (!loop_finished(&a))
        (void)pthread_cond_wait(&t->finished, &t->lock);
    atomic_store(&t->caller_asleep, false);
    (void)pthread_mutex_unlock(&t->lock);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    unsigned n_loops = 0;
    atomic_store(&m->number, thread_number());
    for (;;) {
        await_loop(m, n_loops);
        n_loops = atomic_load(&t->n_loops);
        if (atomic_load(&t->ends))
            return NULL;
        work_off_all(t, m->index);
    }
}

static void announce(struct team *t)
{
    atomic_fetch_add(&t->n_loops, 1);
    if (atomic_load(&t->n_asleep) > 0)
        wake(t, &t->begun);
}

/* ---- the team ------------------------------------------------------------------------------- */

void team_run(struct team *t, int64_t n, int64_t grain, team_work *work, const void *job)
{
    if (n <= 0)
        return;
    grain = MAX(grain, (int64_t)1);
    if (!t || t->n_threads == 1 || n <= grain) {
        work(job, 0, n, 0);
        return;
    }
    BUG_ON(atomic_load(&t->n_unfinished) != 0); /* a loop within a loop */
    int64_t longest = (n + t->n_threads - 1) / t->n_threads;
    int64_t n_pieces = 0;
    t->work = work;
    t->job = job;
    t->n = n;
    t->piece = MAX((longest + SHARE_PIECES - 1) / SHARE_PIECES, grain);
    for (int i = 0; i < t->n_threads; i++)
        n_pieces += share_pieces(t, i);
    atomic_store(&t->n_unfinished, n_pieces);
    for (int i = 0; i < t->n_threads; i++)
        atomic_store_explicit(&t->shares[i].n_left, share_pieces(t, i), memory_order_release);
    announce(t);
    work_off_all(t, 0);
    await_finish(&t->members[0]);
}

/* Signals are for the thread that trains: it saves before it ends. */
static enum status start(struct team *t)
{
    sigset_t all, before;
    int failure = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    while (t->n_started < t->n_threads && failure == 0) {
        struct member *m = &t->members[t->n_started];
        failure = pthread_create(&m->thread, NULL, member_main, m);
        t->n_started += failure == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return FAIL(ERR_FAILED, "cannot start thread %d of %d (num_threads): %s", t->n_started + 1,
                    t->n_threads, strerror(failure));
    return OK;
}

enum status team_new(struct team **out, int n_threads)
{
    BUG_ON(n_threads < 1);
    *out = NULL;
    struct team *t = mem_calloc(1, sizeof(*t));
    if (!t)
        return FAIL(ERR_MEMORY, "out of memory");
    t->n_threads = n_threads;
    t->n_started = 1; /* the caller */
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->begun, NULL);
    (void)pthread_cond_init(&t->finished, NULL);
    enum status status = mem_try_array(&t->members, (size_t)n_threads, sizeof(*t->members));
    if (status == OK)
        status = mem_try_array(&t->shares, (size_t)n_threads, sizeof(*t->shares));
    for (int i = 0; i < n_threads && status == OK; i++) {
        t->members[i].team = t;
        t->members[i].index = i;
    }
    if (status == OK)
        status = start(t);
    if (status != OK) {
        team_free(t);
        return status;
    }
    *out = t;
    return OK;
}

void team_free(struct team *t)
{
    if (!t)
        return;
    atomic_store(&t->ends, true);
    announce(t);
    for (int i = 1; i < t->n_started; i++)
        (void)pthread_join(t->members[i].thread, NULL);
    (void)pthread_cond_destroy(&t->finished);
    (void)pthread_cond_destroy(&t->begun);
    (void)pthread_mutex_destroy(&t->lock);
    mem_free(t->members);
    mem_free(t->shares);
    mem_free(t);
}

/* ---- copies ---------------------------------------------------------------------------------- */

enum { PIECE_BYTES = 1 << 20 };
struct copying {
    char *to;
    const char *from;
    int64_t n_bytes;
};

/* The last piece may be short. */
static void copy_pieces(const void *job, int64_t first, int64_t last, int thread)
{
    const struct copying *c = job;
    int64_t at = first * PIECE_BYTES, end = MIN(last * PIECE_BYTES, c->n_bytes);
    (void)thread;
    memcpy(c->to + at, c->from + at, (size_t)(end - at));
}

void team_copy(struct team *t, void *to, const void *from, int64_t n_bytes)
{
    const struct copying c = {to, from, n_bytes};
    team_run(t, (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES, 2, copy_pieces, &c);
}

double team_delay_s(const struct team *t)
{
    double sum = run_delay_s(thread_number());
    for (int i = 1; t && i < t->n_threads; i++) {
        int number = atomic_load(&t->members[i].number);
        sum += number > 0 ? run_delay_s(number) : 0.0;
    }
    return sum;
}
