/* Five words for how a run stands with its memory, what grows, and the curve of a long run. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/scratch.h"
#include "watch/watch.h"

#define GIB ((int64_t)1 << 30)

static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* A run that needs `need` percent of a budget of 100 GiB, while others leave it `left` percent. */
static enum health at(int profile, int64_t need, int64_t left)
{
    struct health_input in = {.need = need * GIB,
                              .own = need * GIB,
                              .free = (left - need) * GIB,
                              .budget = 100 * GIB,
                              .room = 200 * GIB};
    return health_look(&health_profiles[profile], &in).health;
}

static void the_words_follow_the_thresholds(void **state)
{
    (void)state;
    assert_int_equal(at(0, 50, 200), HEALTH_UNDERUTILISED);
    assert_int_equal(at(0, 71, 200), HEALTH_UNDERUTILISED); /* 0.8 x 0.90 = 0.72 */
    assert_int_equal(at(0, 73, 200), HEALTH_HEALTHY);
    assert_int_equal(at(0, 73, 80), HEALTH_HEALTHY);   /* 0.9125 */
    assert_int_equal(at(0, 74, 80), HEALTH_WARNING);   /* 0.925 */
    assert_int_equal(at(0, 77, 80), HEALTH_CRITICAL);  /* 0.9625 */
    assert_int_equal(at(0, 78, 80), HEALTH_EMERGENCY); /* 0.975 */
    assert_int_equal(at(1, 74, 80), HEALTH_HEALTHY);   /* aggressive: warning at 0.94 */
    assert_int_equal(at(2, 77, 80), HEALTH_EMERGENCY); /* conservative: emergency at 0.95 */
    assert_int_equal(at(2, 71, 80), HEALTH_WARNING);   /* 0.8875 */
    assert_null(health_profile_find("careless"));
    assert_ptr_equal(health_profile_find("conservative"), &health_profiles[2]);
}

/* What a plan fills is exact: it is no alarm by itself, whatever the threshold. */
static void a_plan_that_fills_its_budget_is_healthy_until_somebody_takes_of_it(void **state)
{
    (void)state;
    assert_int_equal(at(0, 99, 200), HEALTH_HEALTHY);
    assert_int_equal(at(0, 100, 200), HEALTH_HEALTHY);
    struct health_input in = {.need = 980 * GIB / 10,
                              .own = 980 * GIB / 10,
                              .free = GIB,
                              .budget = 100 * GIB,
                              .room = 200 * GIB};
    /* 98 of 99: half of what was left is gone; between critical (0.99) and emergency (0.994) */
    struct health_view v = health_look(&health_profiles[0], &in);
    assert_int_equal(v.health, HEALTH_WARNING);
    in.free = GIB / 2;
    assert_int_equal(health_look(&health_profiles[0], &in).health, HEALTH_EMERGENCY);
    /* A process that holds more than its budget, though everything was planned. */
    in = (struct health_input){.need = 90 * GIB,
                               .own = 101 * GIB,
                               .free = 50 * GIB,
                               .budget = 100 * GIB,
                               .room = 150 * GIB};
    v = health_look(&health_profiles[0], &in);
    assert_int_equal(v.health, HEALTH_EMERGENCY);
    assert_true(v.use > 1);
}

/* ---- growth ---------------------------------------------------------------------------------- */

static void steady_growth_is_told_from_noise_and_from_a_level(void **state)
{
    (void)state;
    struct growth leak = {.id = 1}, level = {.id = 2}, saw = {.id = 3};
    double seconds;
    for (int i = 0; i < GROWTH_SAMPLES; i++) {
        growth_add(&leak, i, GIB + i * (GIB / 16));
        growth_add(&level, i, GIB + (i % 2));
        growth_add(&saw, i, GIB + (i % 5) * (GIB / 16));
        if (i < GROWTH_SAMPLES - 1)
            assert_true(growth_rate(&leak) == 0); /* too few to say */
    }
    assert_float_equal(growth_rate(&leak), (double)GIB / 16, 1);
    assert_true(growth_rate(&level) < 1);
    assert_true(growth_rate(&saw) == 0);
    assert_true(growth_is_leak(&leak, 10 * GIB, &seconds));
    assert_float_equal(seconds, 160, 1e-6);
    assert_false(growth_is_leak(&leak, 100 * GIB, &seconds)); /* in 27 minutes */
    assert_false(growth_is_leak(&level, 10 * GIB, &seconds));
}

/* ---- another process leaks ------------------------------------------------------------------- */

enum { PIECE = 6 << 20 };

static _Noreturn void leak_on(void)
{
    for (;;) {
        void *p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            _exit(1);
        memset(p, 1, PIECE);
        (void)usleep(15000);
    }
}

static const struct watch_alert *alert_about(const struct watch *w, const char *what, int64_t pid)
{
    for (int i = 0; i < w->n_alerts; i++) {
        if (strcmp(w->alerts[i].about, what) == 0 && w->alerts[i].pid == pid)
            return &w->alerts[i];
    }
    return NULL;
}

static void a_leak_in_another_process_raises_an_alert_that_names_it(void **state)
{
    (void)state;
    struct live *live;
    struct watch w;
    struct live_run run = {.pid = getpid(),
                           .process_start = live_process_start(getpid()),
                           .is_shared = true,
                           .needs = {GIB / 8, GIB / 8},
                           .budget = {INT64_MAX, INT64_MAX},
                           .id = "a-run"};
    expect_ok(live_create(&live, scratch.folder, &run));
    expect_ok(watch_open(&w, scratch.folder, &health_profiles[0]));
    pid_t child = fork();
    if (child == 0)
        leak_on();
    const struct watch_alert *a = NULL;
    for (int i = 0; i < 60 && !a; i++) {
        (void)usleep(20000);
        expect_ok(watch_look(&w));
        a = alert_about(&w, "growth", child);
        if (i < GROWTH_SAMPLES / 2)
            assert_null(a);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    if (!a)
        fail_msg("no alert names process %d", (int)child);
    assert_true(a->level >= HEALTH_WARNING);
    assert_int_equal(a->memory, MEMORY_HOST);
    assert_non_null(strstr(a->text, "grew by"));
    /* It is gone, and the alert with it. */
    expect_ok(watch_look(&w));
    assert_null(alert_about(&w, "growth", child));
    watch_close(&w);
    live_close(live);
}

static void a_run_that_is_gone_without_a_word_is_an_alert(void **state)
{
    (void)state;
    struct live *live;
    struct watch w;
    pid_t child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    struct live_run run = {
        .pid = child, .process_start = live_process_start(child), .is_shared = true, .id = "b"};
    expect_ok(live_create(&live, scratch.folder, &run));
    expect_ok(watch_open(&w, scratch.folder, &health_profiles[0]));
    expect_ok(watch_look(&w));
    assert_string_equal(watch_state(&w), "starting");
    assert_null(alert_about(&w, "end", 0));
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    expect_ok(watch_look(&w));
    assert_string_equal(watch_state(&w), "gone");
    assert_non_null(alert_about(&w, "end", 0));
    watch_close(&w);
    live_close(live);
}

/* ---- the curve ------------------------------------------------------------------------------- */

static void a_million_steps_stay_a_thousand_points_with_their_extremes(void **state)
{
    (void)state;
    static struct curve c;
    const int64_t n = 1000000;
    for (int64_t i = 1; i <= n; i++)
        curve_add(&c, i, i == 777777 ? 99.0 : 1000.0 / (double)i, 1e-3, 10);
    assert_in_range(c.n, CURVE_POINTS / 2, CURVE_POINTS);
    int64_t count = 0;
    double most_late = 0;
    for (int i = 0; i < c.n; i++) {
        count += c.points[i].n;
        if (i)
            assert_int_equal(c.points[i].first, c.points[i - 1].last + 1);
        if (c.points[i].first > n / 2)
            most_late = fmax(most_late, c.points[i].most);
    }
    assert_int_equal(count, n);
    assert_float_equal(most_late, 99.0, 0); /* one step in a million is still seen */
    assert_float_equal(c.points[0].most, 1000.0, 0);
    curve_release(&c);
}

static void steps_that_were_run_twice_count_as_they_came_last(void **state)
{
    (void)state;
    static struct curve c;
    struct str text = {0};
    bool more;
    str_add(&text, "{\"t\":1.5,\"kind\":\"config\",\"run\":\"x\",\"config\":{\"lr\":3}}\n");
    for (int i = 1; i <= 10; i++)
        str_addf(&text,
                 "{\"t\":1.5,\"kind\":\"step\",\"step\":%d,\"loss\":%d,\"lr\":0.5,\"step_ms\":4}\n",
                 i, i);
    str_add(&text, "{\"t\":1.5,\"kind\":\"eval\",\"step\":10,\"loss\":7.5}\n");
    scratch_write_text(&scratch, "metrics.jsonl", text.text);
    expect_ok(curve_read(&c, scratch.folder, 1 << 20, &more));
    assert_false(more);
    assert_int_equal(c.n, 10);
    assert_int_equal(c.n_evals, 1);
    assert_float_equal(c.points[9].rate, 250, 0);
    /* Resumed from step 6; the last line is not whole yet. */
    str_add(&text, "{\"t\":2,\"kind\":\"step\",\"step\":7,\"loss\":null,\"lr\":0.5,\"step_ms\":4}\n"
                   "{\"t\":2,\"kind\":\"step\",\"step\":8,\"loss\":80,\"lr\":0.5,\"step_");
    FILE *f = fopen(
        text.text ? scratch_path(&scratch, "metrics.jsonl", (char[SCRATCH_PATH]){0}) : "", "w");
    assert_non_null(f);
    assert_true(fputs(text.text, f) >= 0);
    (void)fclose(f);
    expect_ok(curve_read(&c, scratch.folder, 1 << 20, &more));
    assert_int_equal(c.n, 7);
    assert_int_equal(c.points[6].n, 0); /* there was no loss */
    assert_int_equal(c.n_evals, 0);
    curve_release(&c);
    str_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_words_follow_the_thresholds),
        cmocka_unit_test(a_plan_that_fills_its_budget_is_healthy_until_somebody_takes_of_it),
        cmocka_unit_test(steady_growth_is_told_from_noise_and_from_a_level),
        cmocka_unit_test_setup_teardown(a_leak_in_another_process_raises_an_alert_that_names_it,
                                        make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(a_run_that_is_gone_without_a_word_is_an_alert, make_scratch,
                                        drop_scratch),
        cmocka_unit_test(a_million_steps_stay_a_thousand_points_with_their_extremes),
        cmocka_unit_test_setup_teardown(steps_that_were_run_twice_count_as_they_came_last,
                                        make_scratch, drop_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
