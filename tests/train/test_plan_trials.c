/* Which plans a run tries, and with which it goes on: by seconds that are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/plan_trials.h"

#define FOREVER ((int64_t)1 << 40)

/* Plans as a search has found them, each so many percent slower than the best. */
static struct search_report found(int n, const double percent[])
{
    struct search_report r = {.n_findings = n};
    for (int i = 0; i < n; i++)
        r.findings[i].seconds = 1 + percent[i] / 100;
    return r;
}

static struct plan_trials begin(int n_most)
{
    static const double close[] = {0, 0.5, 1, 2, 4};
    const struct search_report r = found(5, close);
    struct plan_trials t;
    plan_trials_init(&t, &r, n_most, 1);
    return t;
}

/* The steps of a turn of the plan that runs, of which so many do not count. */
static enum trials_wish turn(struct plan_trials *t, double seconds, int n_warm, int64_t n_left)
{
    int n = n_warm + TRIALS_TIMED;
    for (int i = 1; i < n; i++) {
        double slow = i <= n_warm ? 50 : seconds;
        assert_int_equal(plan_trials_step(t, slow, n_left + n - i), TRIALS_NONE);
    }
    return plan_trials_step(t, seconds, n_left);
}

static enum trials_wish first_turn(struct plan_trials *t, double seconds, int64_t n_left)
{
    return turn(t, seconds, TRIALS_FIRST + TRIALS_WARM, n_left);
}

static enum trials_wish later_turn(struct plan_trials *t, double seconds)
{
    return turn(t, seconds, TRIALS_WARM, FOREVER);
}

static void change(struct plan_trials *t, enum trials_wish wish, int to)
{
    assert_int_equal(wish, TRIALS_CHANGE);
    assert_int_equal(plan_trials_wanted(t), to);
    assert_int_equal(plan_trials_changed(t, 1 + to / 100.0), TRIALS_NONE);
}

/* The second turn of a plan that follows its first begins like all others. */
static enum trials_wish turn_again(struct plan_trials *t, enum trials_wish wish, double seconds,
                                   int64_t n_left)
{
    change(t, wish, t->tried[t->i_running].rank);
    return turn(t, seconds, TRIALS_WARM, n_left);
}

static enum trials_wish last_turns(struct plan_trials *t, double seconds, double again)
{
    return turn_again(t, later_turn(t, seconds), again, FOREVER);
}

static void change_for_good(struct plan_trials *t, enum trials_wish wish, int to)
{
    assert_int_equal(wish, TRIALS_CHANGE);
    assert_int_equal(plan_trials_wanted(t), to);
    assert_int_equal(plan_trials_changed(t, 1), TRIALS_SETTLED);
}

static void expect_over(struct plan_trials *t, int rank)
{
    assert_int_equal(t->tried[t->i_running].rank, rank);
    for (int i = 0; i < 100; i++)
        assert_int_equal(plan_trials_step(t, i % 2 ? 1 : 100, FOREVER), TRIALS_NONE);
}

static bool is_about(double x, double y)
{
    return x > y - 1e-9 && x < y + 1e-9;
}

static void the_fastest_is_gone_back_to(void **state)
{
    struct plan_trials t = begin(3);
    (void)state;
    change(&t, first_turn(&t, 1.05, FOREVER), 2);
    change(&t, later_turn(&t, 1.01), 3);
    change(&t, last_turns(&t, 1.03, 1.04), 2);
    change(&t, later_turn(&t, 1.02), 1);
    change_for_good(&t, later_turn(&t, 1.06), 2);
    assert_int_equal(t.n_tried, 3);
    for (int i = 0; i < 3; i++) {
        static const double measured[] = {1.055, 1.015, 1.035}, planned[] = {1, 1.02, 1.03};
        assert_int_equal(t.tried[i].rank, i + 1);
        assert_int_equal(t.tried[i].n_turns, 2);
        assert_true(is_about(t.tried[i].measured_s, measured[i]));
        assert_true(t.tried[i].planned_s == planned[i]);
    }
    expect_over(&t, 2);
}

/* Every turn is slower than the one before, and the third plan is the fastest. */
static void a_device_that_gets_slower_slows_all_alike(void **state)
{
    struct plan_trials t = begin(3);
    const double warm = 0.01;
    (void)state;
    change(&t, first_turn(&t, 1.002, FOREVER), 2);
    change(&t, later_turn(&t, 1.001 + warm), 3);
    change(&t, last_turns(&t, 1.000 + 2 * warm, 1.000 + 3 * warm), 2);
    change(&t, later_turn(&t, 1.001 + 4 * warm), 1);
    change_for_good(&t, turn(&t, 1.002 + 5 * warm, TRIALS_WARM, 0), 3);
    expect_over(&t, 3);
}

static void nothing_changes_where_the_first_is_the_fastest(void **state)
{
    struct plan_trials t = begin(2);
    (void)state;
    change(&t, first_turn(&t, 1.04, FOREVER), 2);
    change(&t, last_turns(&t, 1.06, 1.06), 1);
    assert_int_equal(later_turn(&t, 1.04), TRIALS_SETTLED);
    expect_over(&t, 1);
}

/* One more round between two plans, the first of which runs: 1 2 2 1. */
static enum trials_wish round_of_two(struct plan_trials *t, enum trials_wish wish,
                                     const double seconds[4])
{
    change(t, turn_again(t, wish, seconds[0], FOREVER), 2);
    change(t, last_turns(t, seconds[1], seconds[2]), 1);
    return later_turn(t, seconds[3]);
}

static void of_equal_ones_the_best_by_prediction_runs(void **state)
{
    static const double equal[] = {1, 1, 1, 1};
    struct plan_trials t = begin(2);
    (void)state;
    change(&t, first_turn(&t, 1, FOREVER), 2);
    change(&t, last_turns(&t, 1, 1), 1);
    enum trials_wish wish = round_of_two(&t, later_turn(&t, 1), equal);
    assert_int_equal(round_of_two(&t, wish, equal), TRIALS_SETTLED);
    for (int i = 0; i < 2; i++)
        assert_int_equal(t.tried[i].n_turns, 6);
    expect_over(&t, 1);
}

/* The second plan is lucky at first. */
static void luck_is_found_out(void **state)
{
    static const double slower[] = {1, 1.008, 1.008, 1};
    struct plan_trials t = begin(2);
    (void)state;
    change(&t, first_turn(&t, 1, FOREVER), 2);
    change(&t, last_turns(&t, 0.998, 0.998), 1);
    enum trials_wish wish = round_of_two(&t, later_turn(&t, 1), slower); /* 1.003: within 0.5 % */
    assert_int_equal(round_of_two(&t, wish, slower), TRIALS_SETTLED);
    assert_true(is_about(t.tried[1].measured_s, (2 * 0.998 + 4 * 1.008) / 6));
    expect_over(&t, 1);
}

/* The first is too slow for a second round, the third for a third one; the second and the fourth
 * are left. */
static void only_those_that_are_close_have_more_turns(void **state)
{
    struct plan_trials t = begin(4);
    (void)state;
    change(&t, first_turn(&t, 1.02, FOREVER), 2);
    change(&t, later_turn(&t, 1.002), 3);
    change(&t, later_turn(&t, 1.008), 4);
    change(&t, last_turns(&t, 1, 1), 3);
    change(&t, later_turn(&t, 1.008), 2);
    change(&t, later_turn(&t, 1.002), 1);
    change(&t, later_turn(&t, 1.02), 2); /* the second round */
    change(&t, later_turn(&t, 1.002), 3);
    change(&t, later_turn(&t, 1.008), 4);
    change(&t, last_turns(&t, 1, 1), 3);
    change(&t, later_turn(&t, 1.008), 2);
    change(&t, turn_again(&t, later_turn(&t, 1.002), 1.002, FOREVER), 4); /* the third */
    change(&t, last_turns(&t, 1, 1), 2);
    change_for_good(&t, later_turn(&t, 1.002), 4);
    static const int n_turns[] = {2, 6, 4, 6};
    for (int i = 0; i < 4; i++)
        assert_int_equal(t.tried[i].n_turns, n_turns[i]);
    expect_over(&t, 4);
}

/* A round of two takes four turns, and leaves one to gain from it. */
static void a_run_that_ends_soon_has_fewer_rounds(void **state)
{
    (void)state;
    for (int is_short = 0; is_short < 2; is_short++) {
        struct plan_trials t = begin(2);
        change(&t, first_turn(&t, 1, FOREVER), 2);
        change(&t, last_turns(&t, 1, 1), 1);
        enum trials_wish wish = turn(&t, 1, TRIALS_WARM, 5 * TRIALS_STEPS - is_short);
        assert_int_equal(wish, is_short ? TRIALS_SETTLED : TRIALS_CHANGE);
        if (is_short)
            expect_over(&t, 1);
        else
            change(&t, turn_again(&t, wish, 1, 4 * TRIALS_STEPS), 2);
    }
}

/* A plan that is out is not gone back to, however slow the others become. */
static void those_that_are_out_stay_out(void **state)
{
    static const double warmer[] = {1.1, 1.1, 1.1, 1.1};
    struct plan_trials t = begin(3);
    (void)state;
    change(&t, first_turn(&t, 1, FOREVER), 2);
    change(&t, later_turn(&t, 1), 3);
    change(&t, last_turns(&t, 1.011, 1.011), 2);
    change(&t, later_turn(&t, 1), 1);
    enum trials_wish wish = round_of_two(&t, later_turn(&t, 1), warmer);
    assert_int_equal(round_of_two(&t, wish, warmer), TRIALS_SETTLED);
    expect_over(&t, 1);
}

/* A step that something else disturbed is not what it takes. */
static void outliers_do_not_count(void **state)
{
    struct plan_trials t = begin(2);
    (void)state;
    for (int i = 0; i < TRIALS_FIRST + TRIALS_WARM; i++)
        assert_int_equal(plan_trials_step(&t, 50, FOREVER), TRIALS_NONE);
    static const double seconds[] = {1.2, 1.1, 9, 1.3, 0.1, 1.4};
    for (int i = 0; i < TRIALS_TIMED; i++)
        assert_int_equal(plan_trials_step(&t, seconds[i], FOREVER),
                         i + 1 < TRIALS_TIMED ? TRIALS_NONE : TRIALS_CHANGE);
    assert_true(is_about(t.tried[0].measured_s, 1.25));
}

static void one_plan_is_no_choice(void **state)
{
    static const double alone[] = {0};
    const struct search_report none = found(0, NULL), one = found(1, alone);
    struct plan_trials t = begin(1);
    (void)state;
    expect_over(&t, 1); /* of several, one is wanted */
    plan_trials_init(&t, &none, 5, 1);
    expect_over(&t, 1);
    plan_trials_init(&t, &one, 5, 1);
    expect_over(&t, 1);
}

static void no_more_are_tried_than_were_found_or_are_close(void **state)
{
    static const double percent[] = {0, 1, 4.9, 5.2, 5.3};
    const struct search_report two = found(2, percent), all = found(5, percent);
    struct plan_trials t;
    (void)state;
    plan_trials_init(&t, &two, 5, 1);
    change(&t, first_turn(&t, 2, FOREVER), 2);
    change(&t, last_turns(&t, 1, 1), 1);
    plan_trials_init(&t, &all, 5, 1);
    change(&t, first_turn(&t, 3, FOREVER), 2);
    change(&t, later_turn(&t, 2), 3);
    change(&t, last_turns(&t, 1, 1), 2);
}

static void a_short_run_tries_nothing(void **state)
{
    struct plan_trials t = begin(3);
    (void)state;
    assert_int_equal(first_turn(&t, 1, 4 * TRIALS_STEPS - 1), TRIALS_NONE);
    expect_over(&t, 1);
}

/* There is time for one more plan, and not for two. */
static void a_run_that_ends_soon_tries_fewer(void **state)
{
    struct plan_trials t = begin(3);
    (void)state;
    change(&t, first_turn(&t, 1, 4 * TRIALS_STEPS), 2);
    enum trials_wish wish = turn(&t, 2, TRIALS_WARM, 3 * TRIALS_STEPS);
    change(&t, turn_again(&t, wish, 2, 2 * TRIALS_STEPS), 1);
    assert_int_equal(turn(&t, 1, TRIALS_WARM, TRIALS_STEPS), TRIALS_SETTLED);
    expect_over(&t, 1);
}

/* Those that were tried have their second turns. */
static void after_a_plan_that_cannot_be_had_none_is_tried(void **state)
{
    struct plan_trials t = begin(5);
    (void)state;
    change(&t, first_turn(&t, 2, FOREVER), 2);
    assert_int_equal(later_turn(&t, 1), TRIALS_CHANGE);
    assert_int_equal(plan_trials_wanted(&t), 3);
    change(&t, turn_again(&t, plan_trials_refused(&t), 1, FOREVER), 1);
    change_for_good(&t, later_turn(&t, 2), 2);
    assert_int_equal(t.n_tried, 2);
    expect_over(&t, 2);
}

static void the_one_that_runs_goes_on_where_there_is_no_way_back(void **state)
{
    struct plan_trials t = begin(3);
    (void)state;
    change(&t, first_turn(&t, 1, FOREVER), 2);
    change(&t, later_turn(&t, 2), 3);
    assert_int_equal(last_turns(&t, 3, 3), TRIALS_CHANGE);
    assert_int_equal(plan_trials_refused(&t), TRIALS_SETTLED);
    expect_over(&t, 3);
    t = begin(2);
    change(&t, first_turn(&t, 2, FOREVER), 2);
    change(&t, last_turns(&t, 1, 1), 1);
    assert_int_equal(later_turn(&t, 2), TRIALS_CHANGE);
    assert_int_equal(plan_trials_refused(&t), TRIALS_SETTLED);
    expect_over(&t, 1);
}

/* Nothing was compared, and nothing is said. */
static void a_second_plan_that_cannot_be_had_is_no_trial(void **state)
{
    struct plan_trials t = begin(3);
    (void)state;
    assert_int_equal(first_turn(&t, 1, FOREVER), TRIALS_CHANGE);
    assert_int_equal(plan_trials_refused(&t), TRIALS_NONE);
    expect_over(&t, 1);
}

static void another_budget_ends_the_trials(void **state)
{
    struct plan_trials t = begin(3);
    (void)state;
    change(&t, first_turn(&t, 1, FOREVER), 2);
    assert_int_equal(plan_trials_step(&t, 2, FOREVER), TRIALS_NONE);
    plan_trials_end(&t);
    expect_over(&t, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_is_gone_back_to),
        cmocka_unit_test(a_device_that_gets_slower_slows_all_alike),
        cmocka_unit_test(nothing_changes_where_the_first_is_the_fastest),
        cmocka_unit_test(of_equal_ones_the_best_by_prediction_runs),
        cmocka_unit_test(luck_is_found_out),
        cmocka_unit_test(only_those_that_are_close_have_more_turns),
        cmocka_unit_test(a_run_that_ends_soon_has_fewer_rounds),
        cmocka_unit_test(those_that_are_out_stay_out),
        cmocka_unit_test(outliers_do_not_count),
        cmocka_unit_test(one_plan_is_no_choice),
        cmocka_unit_test(no_more_are_tried_than_were_found_or_are_close),
        cmocka_unit_test(a_short_run_tries_nothing),
        cmocka_unit_test(a_run_that_ends_soon_tries_fewer),
        cmocka_unit_test(after_a_plan_that_cannot_be_had_none_is_tried),
        cmocka_unit_test(the_one_that_runs_goes_on_where_there_is_no_way_back),
        cmocka_unit_test(a_second_plan_that_cannot_be_had_is_no_trial),
        cmocka_unit_test(another_budget_ends_the_trials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
