/* The order in which advice tries variants, over a run that is made up: bytes by formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "search/refusal.h"

/* A run of 1000 bytes of weights and 100 for each of `batch` sequences. Change 0 halves the
 * weights, change 1 takes 200 bytes off them, change 2 cannot be made; recomputing halves a
 * sequence. */
enum { WEIGHTS = 1000, SEQUENCE = 100, BATCH = 6 };

struct made_up {
    int n_planned;
    struct variant last;
};

static int64_t weights_of(const struct variant *v)
{
    int64_t n = v->changes & 1 ? WEIGHTS / 2 : WEIGHTS;
    return v->changes & 2 ? n - 200 : n;
}

static int64_t least(void *user, const struct variant *v)
{
    (void)user;
    return v->changes & 4 ? INT64_MAX : weights_of(v);
}

static bool plan(void *user, const struct variant *v, int64_t *n_bytes)
{
    struct made_up *m = user;
    m->n_planned++;
    m->last = *v;
    *n_bytes = weights_of(v) + BATCH / v->n_parts * (v->release ? SEQUENCE / 2 : SEQUENCE);
    return true;
}

static void describe(void *user, const struct variant *v, struct str *out)
{
    (void)user;
    str_addf(out, "changes %u, release %d, parts %d", v->changes, v->release, (int)v->n_parts);
}

static struct advice ask(int64_t limit, bool may_release, struct made_up *m)
{
    static const int harshness[] = {5, 1, 2};
    struct forecast now = {.breakdown = {[MEMORY_WEIGHTS] = WEIGHTS}};
    struct advice advice;
    struct variants x = {.harshness = harshness,
                         .n_changes = 3,
                         .may_release = may_release,
                         .batch = BATCH,
                         .user = m,
                         .least = least,
                         .plan = plan,
                         .describe = describe};
    *m = (struct made_up){0};
    now.budget.needs[TIER_DEVICE] = WEIGHTS + BATCH * SEQUENCE;
    advice_find(&x, &now, TIER_DEVICE, limit, &advice);
    return advice;
}

static void expect_advice(int64_t limit, bool may_release, const char *text, int64_t n_bytes)
{
    struct made_up m;
    struct advice a = ask(limit, may_release, &m);
    assert_true(a.n > 0);
    assert_string_equal(a.remedies[0].text, text);
    assert_int_equal(a.remedies[0].n_bytes, n_bytes);
}

static void recomputing_comes_before_smaller_batches_before_other_numerics(void **state)
{
    (void)state;
    expect_advice(1599, true, "changes 0, release 1, parts 1", 1300);
    expect_advice(1299, true, "changes 0, release 1, parts 2", 1150);
    expect_advice(1149, true, "changes 0, release 1, parts 3", 1100);
    expect_advice(1099, true, "changes 0, release 1, parts 6", 1050);
    expect_advice(1049, true, "changes 2, release 1, parts 2", 950);
}

static void the_mildest_change_that_fits_is_named(void **state)
{
    (void)state;
    expect_advice(849, true, "changes 1, release 1, parts 1", 800);
    expect_advice(549, true, "changes 3, release 1, parts 2", 450);
}

/* Three mild changes save as much as one of twice their kind. */
static int64_t least_of_four(void *user, const struct variant *v)
{
    (void)user;
    return v->changes == 8 || v->changes == 7 ? WEIGHTS / 2 : WEIGHTS;
}

static bool plan_four(void *user, const struct variant *v, int64_t *n_bytes)
{
    *n_bytes = least_of_four(user, v);
    return true;
}

static void one_change_is_named_before_several_that_sum_up_to_more(void **state)
{
    static const int harshness[] = {1, 1, 1, 2};
    struct forecast now = {.breakdown = {[MEMORY_WEIGHTS] = WEIGHTS}};
    struct variants x = {.harshness = harshness,
                         .n_changes = 4,
                         .batch = 1,
                         .least = least_of_four,
                         .plan = plan_four,
                         .describe = describe};
    struct advice a;
    (void)state;
    now.budget.needs[TIER_DEVICE] = WEIGHTS;
    advice_find(&x, &now, TIER_DEVICE, WEIGHTS / 2, &a);
    assert_true(a.n > 0);
    assert_string_equal(a.remedies[0].text, "changes 8, release 0, parts 1");
}

static void what_is_not_held_is_not_let_go(void **state)
{
    (void)state;
    expect_advice(1599, false, "changes 0, release 0, parts 2", 1300);
}

static void what_cannot_fit_is_not_planned(void **state)
{
    struct made_up m;
    (void)state;
    struct advice a = ask(299, true, &m);
    assert_int_equal(a.n, 0);
    assert_int_equal(m.n_planned, 0);
    assert_int_equal(a.least, 300); /* the least of all variants, known without planning */
    assert_int_equal(a.most, MEMORY_WEIGHTS);
    assert_int_equal(a.most_bytes, WEIGHTS);
}

/* Each does by itself: none asks for all that another asks for, and more. */
static void other_ways_follow_from_the_mildest_on(void **state)
{
    struct made_up m;
    (void)state;
    struct advice a = ask(1400, true, &m);
    const char *const texts[] = {"changes 0, release 1, parts 1", "changes 2, release 0, parts 1",
                                 "changes 1, release 0, parts 1"};
    const int64_t n_bytes[] = {1300, 1400, 1100};
    assert_int_equal(a.n, ARRAY_LEN(texts));
    for (int i = 0; i < a.n; i++) {
        assert_string_equal(a.remedies[i].text, texts[i]);
        assert_int_equal(a.remedies[i].n_bytes, n_bytes[i]);
    }
}

/* More of a budget is named as a way out up to the last byte that there is, and not beyond. */
static void as_much_as_there_is_may_be_given(void **state)
{
    (void)state;
    const int64_t mib = 1 << 20;
    struct advice advice = {.n = 1, .remedies = {{.n_bytes = mib, .text = "optim=sgd"}}};
    for (int lacks = 0; lacks < 2; lacks++) {
        const struct budget b = {.n_bytes = {5 * mib},
                                 .had = {8 * mib},
                                 .needs = {8 * mib + lacks},
                                 .given = {[TIER_DEVICE] = true}};
        const struct shortage s = {&b, TIER_DEVICE, .is_given = true};
        assert_int_equal(refuse_run(&s, &advice), ERR_FIT);
        assert_non_null(strstr(status_message(), "optim=sgd"));
        assert_int_equal(strstr(status_message(), "device_memory=8MiB") != NULL, !lacks);
        assert_int_equal(strstr(status_message(), "_memory=") != NULL, !lacks);
    }
}

/* Where two budgets are too small, more of one of them alone does not help. */
static void a_second_shortage_is_told_and_one_budget_is_no_way_out(void **state)
{
    (void)state;
    const int64_t mib = 1 << 20;
    const struct advice advice = {.host_bytes = 11 * mib};
    const struct budget b = {.n_bytes = {5 * mib, 6 * mib, 0},
                             .had = {80 * mib, 80 * mib, 0},
                             .needs = {8 * mib, 9 * mib, 0},
                             .given = {[TIER_DEVICE] = true, [TIER_HOST] = true}};
    const struct shortage s = {&b, TIER_DEVICE, .is_given = true};
    assert_int_equal(refuse_run(&s, &advice), ERR_FIT);
    assert_non_null(strstr(status_message(), "and host memory lacks 3.00 MiB of 9.00 MiB"));
    assert_null(strstr(status_message(), "device_memory="));
    assert_non_null(strstr(status_message(), "host_memory=12MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputing_comes_before_smaller_batches_before_other_numerics),
        cmocka_unit_test(the_mildest_change_that_fits_is_named),
        cmocka_unit_test(one_change_is_named_before_several_that_sum_up_to_more),
        cmocka_unit_test(what_is_not_held_is_not_let_go),
        cmocka_unit_test(what_cannot_fit_is_not_planned),
        cmocka_unit_test(other_ways_follow_from_the_mildest_on),
        cmocka_unit_test(as_much_as_there_is_may_be_given),
        cmocka_unit_test(a_second_shortage_is_told_and_one_budget_is_no_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
