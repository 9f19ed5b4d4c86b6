/* Learning rates by step, against figures of Hugging Face's schedulers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "optim/optimizer.h"

static const struct schedule constant = {
    .kind = SCHEDULE_CONSTANT, .peak = 2e-3, .n_warmup = 4, .n_steps = 20};
static const struct schedule linear = {
    .kind = SCHEDULE_LINEAR, .peak = 2e-3, .n_warmup = 4, .n_steps = 20};
static const struct schedule cosine = {
    .kind = SCHEDULE_COSINE, .peak = 2e-3, .n_warmup = 4, .n_steps = 20, .cycles = 0.5};

static void expect_rate(const struct schedule *s, int64_t i_step, double want)
{
    double got = schedule_at(s, i_step);
    if (fabs(got - want) > 1e-12)
        fail_msg("step %lld: %.15g, not %.15g", (long long)i_step, got, want);
}

static void warm_up_climbs_in_equal_steps_from_zero(void **state)
{
    (void)state;
    const struct schedule *all[] = {&constant, &linear, &cosine};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        expect_rate(all[i], 0, 0.0);
        expect_rate(all[i], 1, 0.5e-3);
        expect_rate(all[i], 3, 1.5e-3);
        expect_rate(all[i], 4, 2e-3);
    }
}

static void constant_stays(void **state)
{
    (void)state;
    expect_rate(&constant, 5, 2e-3);
    expect_rate(&constant, 1000, 2e-3);
}

/* get_linear_schedule_with_warmup(4, 20): (20 - i) / 16 */
static void linear_falls_in_equal_steps_to_zero(void **state)
{
    (void)state;
    expect_rate(&linear, 5, 2e-3 * 15 / 16);
    expect_rate(&linear, 12, 1e-3);
    expect_rate(&linear, 19, 2e-3 / 16);
    expect_rate(&linear, 20, 0.0);
}

/* get_cosine_schedule_with_warmup(4, 20): (1 + cos(pi (i - 4) / 16)) / 2 */
static void cosine_falls_by_half_a_wave(void **state)
{
    (void)state;
    expect_rate(&cosine, 8, 2e-3 * 0.853553390593273762);
    expect_rate(&cosine, 12, 1e-3);
    expect_rate(&cosine, 16, 2e-3 * 0.146446609406726238);
    expect_rate(&cosine, 20, 0.0);
}

static void a_floor_is_where_the_fall_ends(void **state)
{
    (void)state;
    struct schedule a = linear, b = cosine;
    a.floor = b.floor = 2e-4;
    expect_rate(&a, 0, 0.0); /* the climb begins at zero all the same */
    expect_rate(&a, 4, 2e-3);
    expect_rate(&a, 12, 1.1e-3);
    expect_rate(&a, 20, 2e-4);
    expect_rate(&b, 12, 1.1e-3);
    expect_rate(&b, 20, 2e-4);
}

static void after_the_last_step_the_rate_stays_where_it_ended(void **state)
{
    (void)state;
    expect_rate(&linear, 33, 0.0);
    expect_rate(&cosine, 33, 0.0);
}

static void without_warm_up_the_first_step_has_the_peak(void **state)
{
    (void)state;
    struct schedule s = linear;
    s.n_warmup = 0;
    expect_rate(&s, 0, 2e-3);
    expect_rate(&s, 10, 1e-3);
}

static void a_fall_of_a_single_step_is_at_the_peak(void **state)
{
    (void)state;
    struct schedule one = {.kind = SCHEDULE_LINEAR, .peak = 0.5, .floor = 0.1, .n_steps = 1};
    assert_true(schedule_at(&one, 0) == 0.5);
    one.n_warmup = 2;
    one.n_steps = 3;
    assert_true(schedule_at(&one, 2) == 0.5);
}

static void a_run_that_is_all_warm_up_ends_at_the_floor(void **state)
{
    (void)state;
    struct schedule s = linear;
    s.n_warmup = s.n_steps = 4;
    s.floor = 1e-4;
    expect_rate(&s, 3, 1.5e-3);
    expect_rate(&s, 4, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_climbs_in_equal_steps_from_zero),
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(linear_falls_in_equal_steps_to_zero),
        cmocka_unit_test(cosine_falls_by_half_a_wave),
        cmocka_unit_test(a_floor_is_where_the_fall_ends),
        cmocka_unit_test(after_the_last_step_the_rate_stays_where_it_ended),
        cmocka_unit_test(without_warm_up_the_first_step_has_the_peak),
        cmocka_unit_test(a_fall_of_a_single_step_is_at_the_peak),
        cmocka_unit_test(a_run_that_is_all_warm_up_ends_at_the_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
