/* What was measured about a device is there for the next process, unless others were in the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/figures.h"
#include "support/golden.h"
#include "support/scratch.h"

static int n_measured;
static bool is_quiet;
static double speed;
static int64_t context_bytes;

static enum status measure(struct device *d, bool *undisturbed)
{
    d->rates = (struct device_rates){.matmul_flops = speed, .memory_bytes = 1e10};
    d->rates.links[TIER_HOST][TIER_DEVICE].alone = 1e9;
    d->rates.links[TIER_DEVICE][TIER_HOST].alone = 1e9;
    context_bytes = 7 << 20;
    n_measured++;
    *undisturbed = is_quiet;
    return OK;
}

static int set_up(void **state)
{
    static struct scratch scratch;
    scratch_init(&scratch);
    *state = &scratch;
    n_measured = 0;
    is_quiet = true;
    speed = 123e9;
    return 0;
}

static int tear_down(void **state)
{
    scratch_release(*state);
    return 0;
}

/* As another process would; returns the rate of products. */
static double take(const struct scratch *s, const char *identity, int64_t *n_bytes)
{
    struct device d = {.ops = NULL};
    (void)snprintf(d.identity, sizeof(d.identity), "%s", identity);
    expect_ok(device_figures(&d, s->folder, &(struct figures_source){measure, n_bytes}));
    return d.rates.matmul_flops;
}

static void figures_are_measured_once_per_device(void **state)
{
    take(*state, "one", &context_bytes);
    context_bytes = 0;
    speed = 456e9;
    assert_true(take(*state, "one", &context_bytes) == 123e9);
    assert_int_equal(context_bytes, 7 << 20);
    assert_int_equal(n_measured, 1);
    assert_true(take(*state, "two", NULL) == 456e9);
    assert_true(take(*state, "two", NULL) == 456e9);
    assert_int_equal(n_measured, 2);
}

static void figures_that_others_disturbed_are_measured_again(void **state)
{
    is_quiet = false;
    take(*state, "one", NULL);
    is_quiet = true;
    speed = 456e9;
    assert_true(take(*state, "one", NULL) == 456e9);
    assert_true(take(*state, "one", NULL) == 456e9);
    assert_int_equal(n_measured, 2);
}

/* A file without the size, as of a device that has none, does not do for one that has. */
static void figures_that_make_no_sense_are_measured_again(void **state)
{
    take(*state, "one", NULL);
    take(*state, "one", &context_bytes);
    assert_int_equal(n_measured, 2);
    speed = 0;
    take(*state, "slow", NULL);
    take(*state, "slow", NULL);
    assert_int_equal(n_measured, 4);
}

static void the_cpu_opens_with_the_rates_that_are_kept(void **state)
{
    const struct scratch *s = *state;
    struct device d;
    expect_ok(device_open_cpu(&d, 1));
    char identity[sizeof(d.identity)];
    memcpy(identity, d.identity, sizeof(identity));
    device_close(&d);
    take(s, identity, NULL);
    expect_ok(device_open_cpu_cached(&d, 1, s->folder));
    assert_true(d.rates.matmul_flops == 123e9);
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(figures_are_measured_once_per_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(figures_that_others_disturbed_are_measured_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(figures_that_make_no_sense_are_measured_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_cpu_opens_with_the_rates_that_are_kept, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
