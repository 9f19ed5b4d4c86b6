/* The log of a run stays small however long the run, and keeps its shape. */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/history.h"

static struct history history_new(void)
{
    struct history h;
    assert_int_equal(history_init(&h), OK);
    return h;
}

static void add_step(struct history *h, int64_t step)
{
    history_add(h, &(struct history_entry){.step = step,
                                           .epoch = 0.001 * (double)step,
                                           .loss = 1.0 / (double)step,
                                           .grad_norm = 2.0,
                                           .lr = 1e-4});
}

static void add_eval(struct history *h, int64_t step)
{
    history_add(h, &(struct history_entry){
                       .is_eval = true, .step = step, .epoch = 0.5, .loss = 3.0, .seconds = 0.1});
}

static void add_both(struct history *h, int64_t step)
{
    add_step(h, step);
    if (step % 10 == 0)
        add_eval(h, step);
}

static void a_short_run_is_there_step_by_step(void **state)
{
    (void)state;
    struct history h = history_new();
    for (int64_t step = 1; step <= HISTORY_MOST; step++)
        add_step(&h, step);
    assert_int_equal(h.n, HISTORY_MOST);
    for (size_t i = 0; i < h.n; i++)
        assert_int_equal(h.entries[i].step, i + 1);
    history_release(&h);
}

static void a_long_run_is_there_at_even_distances(void **state)
{
    (void)state;
    const int64_t n_steps = 1000000;
    struct history h = history_new();
    for (int64_t step = 1; step <= n_steps; step++)
        add_step(&h, step);
    assert_in_range(h.n, HISTORY_MOST / 4, HISTORY_MOST);
    for (size_t i = 0; i < h.n; i++)
        assert_int_equal(h.entries[i].step, (int64_t)(i + 1) * h.stride);
    assert_true(n_steps - h.entries[h.n - 1].step < h.stride);
    history_release(&h);
}

static void evaluations_are_thinned_like_steps(void **state)
{
    (void)state;
    struct history h = history_new();
    size_t n_evals = 0;
    for (int64_t step = 1; step <= 100000; step++)
        add_both(&h, step);
    assert_true(h.n <= HISTORY_MOST);
    for (size_t i = 0; i < h.n; i++) {
        n_evals += h.entries[i].is_eval;
        assert_true(i == 0 || h.entries[i - 1].step <= h.entries[i].step);
    }
    assert_in_range(n_evals, HISTORY_MOST / 8, HISTORY_MOST / 2);
    history_release(&h);
}

/* A run that goes on from a checkpoint logs what it would have logged. */
static void what_is_read_back_goes_on_the_same(void **state)
{
    (void)state;
    static const int64_t stops[] = {3, 700, 2048, 5000, 300001};
    for (size_t k = 0; k < sizeof(stops) / sizeof(stops[0]); k++) {
        struct history whole = history_new(), first = history_new(), second = history_new();
        for (int64_t step = 1; step <= 2 * stops[k]; step++) {
            add_both(&whole, step);
            if (step <= stops[k])
                add_both(&first, step);
        }
        json_t *log = history_json(&first);
        assert_non_null(log);
        history_read(&second, log);
        for (int64_t step = stops[k] + 1; step <= 2 * stops[k]; step++)
            add_both(&second, step);
        json_t *want = history_json(&whole), *got = history_json(&second);
        assert_true(json_equal(want, got));
        json_decref(want);
        json_decref(got);
        json_decref(log);
        history_release(&whole);
        history_release(&first);
        history_release(&second);
    }
}

static void what_is_no_number_is_null_and_comes_back(void **state)
{
    (void)state;
    struct history h = history_new(), back = history_new();
    history_add(&h, &(struct history_entry){.step = 1, .loss = (double)INFINITY});
    json_t *log = history_json(&h);
    assert_true(json_is_null(json_object_get(json_array_get(log, 0), "loss")));
    history_read(&back, log);
    assert_int_equal(back.n, 1);
    json_t *again = history_json(&back);
    assert_true(json_equal(log, again));
    json_decref(log);
    json_decref(again);
    history_release(&h);
    history_release(&back);
}

static void entries_that_are_none_are_left_out(void **state)
{
    (void)state;
    struct history h = history_new();
    json_t *log = json_loads("[3, {}, {\"step\": \"x\"}, {\"step\": 7}, null]", 0, NULL);
    assert_non_null(log);
    history_read(&h, log);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.entries[0].step, 7);
    history_read(&h, NULL);
    assert_int_equal(h.n, 0);
    json_decref(log);
    history_release(&h);
}

/* ---- what it takes -----------------------------------------------------------------------------
 */

static int64_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return (int64_t)(m.uordblks + m.hblkhd);
}

static void a_full_history_takes_what_is_planned_for_it(void **state)
{
    (void)state;
    struct history h = history_new();
    for (int64_t step = 1; step <= HISTORY_MOST; step++)
        history_add(&h, &(struct history_entry){.step = step,
                                                .epoch = 1e-3 / 3 * (double)step,
                                                .loss = 1.0 / 3,
                                                .grad_norm = 1.0 / 7,
                                                .lr = 1e-5 / 3});
    assert_int_equal(h.n, HISTORY_MOST);
    int64_t before = heap_bytes();
    json_t *log = history_json(&h);
    char *text = json_dumps(log, JSON_INDENT(2));
    int64_t taken = heap_bytes() - before + 2 * (int64_t)strlen(text); /* it grew by doubling */
    if (taken > history_json_bytes(HISTORY_MOST))
        fail_msg("%lld bytes of %lld", (long long)taken,
                 (long long)history_json_bytes(HISTORY_MOST));
    assert_true(history_json_bytes(10 * HISTORY_MOST) == history_json_bytes(HISTORY_MOST));
    free(text);
    json_decref(log);
    history_release(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_history_takes_what_is_planned_for_it),
        cmocka_unit_test(a_short_run_is_there_step_by_step),
        cmocka_unit_test(a_long_run_is_there_at_even_distances),
        cmocka_unit_test(evaluations_are_thinned_like_steps),
        cmocka_unit_test(what_is_read_back_goes_on_the_same),
        cmocka_unit_test(what_is_no_number_is_null_and_comes_back),
        cmocka_unit_test(entries_that_are_none_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
