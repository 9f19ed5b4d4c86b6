/* The team: every item once, whoever is awake does the work, and nobody burns a core in vain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "base/team.h"
#include "support/crowd.h"

enum { ITEMS = 5000, THREADS = 4 };

static struct team *team_of(int n_threads)
{
    struct team *t;
    assert_int_equal(team_new(&t, n_threads), OK);
    return t;
}

struct count {
    atomic_int seen[ITEMS];
    atomic_int inside[THREADS]; /* pieces a thread is in: its scratch is its own */
    atomic_int n_pieces, n_errors;
    int64_t least, n; /* items of a piece, except of the last of a share */
};

static void count_items(const void *job, int64_t first, int64_t last, int thread)
{
    struct count *c = (struct count *)(uintptr_t)job;
    bool alone = thread >= 0 && thread < THREADS && atomic_fetch_add(&c->inside[thread], 1) == 0;
    if (!alone || first < 0 || last > c->n || last <= first)
        atomic_fetch_add(&c->n_errors, 1);
    for (int64_t i = MAX(first, 0); i < MIN(last, (int64_t)ITEMS); i++)
        atomic_fetch_add(&c->seen[i], 1);
    atomic_fetch_add(&c->n_pieces, 1);
    atomic_fetch_sub(&c->inside[thread], 1);
}

static void expect_all_once(struct team *t, int64_t n, int64_t grain)
{
    static struct count c;
    memset(&c, 0, sizeof(c));
    c.n = n;
    team_run(t, n, grain, count_items, &c);
    assert_int_equal(atomic_load(&c.n_errors), 0);
    for (int64_t i = 0; i < ITEMS; i++)
        assert_int_equal(atomic_load(&c.seen[i]), i < n);
    if (n > 0 && n <= grain)
        assert_int_equal(atomic_load(&c.n_pieces), 1);
}

static void every_item_is_done_once(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 63, 64, 65, 1000, ITEMS};
    static const int64_t grains[] = {0, 1, 2, 7, 64, 4999, 10000};
    (void)state;
    for (int n_threads = 1; n_threads <= THREADS; n_threads++) {
        struct team *t = team_of(n_threads);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            for (size_t g = 0; g < ARRAY_LEN(grains); g++)
                expect_all_once(t, sizes[i], grains[g]);
        }
        team_free(t);
    }
    expect_all_once(NULL, ITEMS, 1);
}

/* Loops close on each other, and loops after a pause in which all have fallen asleep. */
static void loops_follow_each_other_at_any_distance(void **state)
{
    (void)state;
    struct team *t = team_of(THREADS);
    for (int i = 0; i < 3000; i++) {
        expect_all_once(t, 1 + i % 100, 1);
        if (i % 300 == 0)
            (void)usleep(2000);
    }
    team_free(t);
}

struct delay {
    atomic_int n_late; /* pieces in the hands of threads that do not get on */
    atomic_int n_done;
};

static void be_late(const void *job, int64_t first, int64_t last, int thread)
{
    struct delay *d = (struct delay *)(uintptr_t)job;
    if (thread != 0) {
        atomic_fetch_add(&d->n_late, 1);
        (void)usleep(100000);
    } else {
        (void)usleep(500); /* time for the others to take a piece */
    }
    atomic_fetch_add(&d->n_done, (int)(last - first));
}

static void a_thread_that_does_not_get_on_keeps_only_the_piece_in_its_hands(void **state)
{
    (void)state;
    struct team *t = team_of(2);
    struct delay d = {0};
    team_run(t, 32, 1, be_late, &d);
    assert_int_equal(atomic_load(&d.n_done), 32);
    assert_true(atomic_load(&d.n_late) <= 2);
    team_free(t);
}

/* ---- what waiting costs ---------------------------------------------------------------------- */

static double process_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* About 20 us for an item. */
static void work_some(const void *job, int64_t first, int64_t last, int thread)
{
    (void)job;
    (void)thread;
    for (volatile int64_t i = 0; i < (last - first) * 10000;)
        i = i + 1;
}

static void threads_without_work_sleep(void **state)
{
    (void)state;
    struct team *t = team_of(THREADS);
    team_run(t, 64, 1, work_some, NULL);
    (void)usleep(20000);
    double before = process_s();
    (void)usleep(200000);
    assert_true(process_s() - before < 0.02);
    team_free(t);
}

/* Loops of a training step on processors that others want too: waiting must cost little beside the
 * work. Time on processors is counted, so that how busy the machine is otherwise does not show. */
static void among_busy_programs_waiting_costs_little(void **state)
{
    enum { LOOPS = 1500, ITEMS_EACH = 8, MOST = 64 };
    (void)state;
    pid_t others[MOST];
    int n = 2 * usable_processors();
    if (n > MOST)
        skip(); /* too many processors to keep busy */
    struct team *t = team_of(MIN(usable_processors(), 8));
    double start = process_s();
    for (int i = 0; i < LOOPS; i++)
        team_run(NULL, ITEMS_EACH, 1, work_some, NULL);
    double alone = process_s() - start;
    crowd_start(others, n);
    start = process_s();
    for (int i = 0; i < LOOPS; i++)
        team_run(t, ITEMS_EACH, 1, work_some, NULL);
    double shared = process_s() - start;
    crowd_end(others, n);
    team_free(t);
    print_message("work %.3f s, with waiting %.3f s\n", alone, shared);
    assert_true(shared < 1.5 * alone);
}

static void starting_a_team_without_memory_is_told(void **state)
{
    (void)state;
    int64_t live = mem_live();
    for (int64_t n = 1; n <= 3; n++) {
        struct team *t;
        mem_fail_after(n, 0);
        assert_int_equal(team_new(&t, 3), ERR_MEMORY);
        mem_fail_after(0, 0);
        assert_null(t);
        assert_int_equal(mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(loops_follow_each_other_at_any_distance),
        cmocka_unit_test(a_thread_that_does_not_get_on_keeps_only_the_piece_in_its_hands),
        cmocka_unit_test(threads_without_work_sleep),
        cmocka_unit_test(among_busy_programs_waiting_costs_little),
        cmocka_unit_test(starting_a_team_without_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
