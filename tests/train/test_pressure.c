/* When a run that gives way wants another budget: by readings that are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/pressure.h"

#define GIB ((int64_t)1 << 30)

/* A device of 100 GiB on which the run was planned to need 60, and others hold so much. */
static struct health_input others(int64_t need_gib, int64_t others_gib)
{
    return (struct health_input){.need = need_gib * GIB,
                                 .own = need_gib * GIB,
                                 .free = (100 - need_gib - others_gib) * GIB,
                                 .budget = INT64_MAX,
                                 .room = 100 * GIB};
}

static enum pressure_wish look(struct pressure *p, int64_t need, int64_t held, int64_t step)
{
    const struct health_input in = others(need, held);
    return pressure_look(p, &in, step);
}

static void note(struct pressure *p, enum pressure_wish w, int64_t need, int64_t held, int64_t step)
{
    const struct health_input in = others(need, held);
    pressure_note(p, w, &in, true, step);
}

static void an_emergency_is_answered_at_once(void **state)
{
    struct pressure p;
    (void)state;
    pressure_init(&p, &health_profiles[0], 25);
    assert_int_equal(look(&p, 60, 20, 1), PRESSURE_NONE);
    assert_int_equal(look(&p, 60, 39, 2), PRESSURE_LESS); /* 60 of 61 */
    const struct health_input in = others(60, 39);
    assert_int_equal(pressure_target(&p, &in) / GIB, 54);
}

static void a_warning_has_to_last(void **state)
{
    struct pressure p;
    (void)state;
    pressure_init(&p, &health_profiles[0], 25);
    assert_int_equal(look(&p, 60, 35, 1), PRESSURE_NONE); /* 60 of 65: 92 % */
    assert_int_equal(look(&p, 60, 35, 2), PRESSURE_NONE);
    assert_int_equal(look(&p, 60, 20, 3), PRESSURE_NONE); /* a breath */
    assert_int_equal(look(&p, 60, 35, 4), PRESSURE_NONE);
    assert_int_equal(look(&p, 60, 35, 5), PRESSURE_NONE);
    assert_int_equal(look(&p, 60, 35, 6), PRESSURE_LESS);
}

/* Critical counts twice, and after a change not before the cool-down is over. */
static void a_change_is_left_alone_for_a_while(void **state)
{
    struct pressure p;
    (void)state;
    pressure_init(&p, &health_profiles[0], 25);
    assert_int_equal(look(&p, 60, 37, 1), PRESSURE_NONE); /* 60 of 63: 95 % */
    assert_int_equal(look(&p, 60, 37, 2), PRESSURE_LESS);
    note(&p, PRESSURE_LESS, 60, 37, 2);
    for (int64_t step = 3; step < 27; step++)
        assert_int_equal(look(&p, 50, 48, step), PRESSURE_NONE);
    assert_int_equal(look(&p, 50, 48, 27), PRESSURE_LESS);
}

static void an_emergency_waits_less(void **state)
{
    struct pressure p;
    int64_t step = 1;
    (void)state;
    pressure_init(&p, &health_profiles[0], 25);
    note(&p, PRESSURE_LESS, 60, 39, 0);
    while (look(&p, 54, 45, step) == PRESSURE_NONE)
        step++;
    assert_int_equal(step, 10);
}

/* What comes back has to stay: ten readings in a row, and twice the cool-down. */
static void memory_that_is_back_is_taken_again(void **state)
{
    struct pressure p;
    int64_t step;
    (void)state;
    pressure_init(&p, &health_profiles[0], 5);
    assert_int_equal(look(&p, 60, 0, 1), PRESSURE_NONE); /* it has all it wants */
    note(&p, PRESSURE_LESS, 60, 39, 1);
    for (step = 2; step < 30; step++) /* neither enough for all of it nor for much more */
        assert_int_equal(look(&p, 54, 37, step), PRESSURE_NONE);
    for (; step < 39; step++)
        assert_int_equal(look(&p, 54, 20, step), PRESSURE_NONE);
    assert_int_equal(look(&p, 54, 36, step++), PRESSURE_NONE); /* and gone again */
    for (int i = 0; i < 9; i++)
        assert_int_equal(look(&p, 54, 20, step++), PRESSURE_NONE);
    assert_int_equal(look(&p, 54, 20, step), PRESSURE_ALL);
    note(&p, PRESSURE_ALL, 54, 20, step);
    for (int i = 0; i < 40; i++)
        assert_int_equal(look(&p, 60, 0, ++step), PRESSURE_NONE);
}

static void a_part_that_is_back_is_taken_too(void **state)
{
    struct pressure p;
    int64_t step = 1;
    (void)state;
    pressure_init(&p, &health_profiles[0], 0);
    note(&p, PRESSURE_LESS, 60, 39, step);
    while (look(&p, 30, 50, ++step) == PRESSURE_NONE)
        ;
    assert_int_equal(step, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_emergency_is_answered_at_once),
        cmocka_unit_test(a_warning_has_to_last),
        cmocka_unit_test(a_change_is_left_alone_for_a_while),
        cmocka_unit_test(an_emergency_waits_less),
        cmocka_unit_test(memory_that_is_back_is_taken_again),
        cmocka_unit_test(a_part_that_is_back_is_taken_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
