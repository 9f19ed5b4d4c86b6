/* Rates that were measured once: what is measured, what is kept of it, and what is not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/machine.h"
#include "device/calibrate.h"
#include "device/disk/disk.h"
#include "support/scratch.h"

static const struct device gpu = {.identity = "a GPU, its driver"};

static struct calibrations one(double rate, bool disturbed)
{
    struct calibrations c = {.n = 1};
    c.rows[0] = (struct calibration){.name = "link, host to device",
                                     .rate = rate,
                                     .spread = 0.02,
                                     .when = 1700000000,
                                     .disturbed = disturbed};
    return c;
}

static double kept_rate(const struct scratch *s)
{
    struct calibrations c;
    assert_int_equal(calibrations_load(&gpu, s->folder, &c), OK);
    return c.n == 1 ? c.rows[0].rate : -1;
}

static void what_was_measured_is_there_for_the_next_process(void **state)
{
    (void)state;
    struct scratch s;
    struct calibrations c = one(55.4e9, false), found;
    scratch_init(&s);
    assert_int_equal(calibrations_store(&gpu, s.folder, &c), OK);
    assert_int_equal(calibrations_load(&gpu, s.folder, &found), OK);
    assert_int_equal(found.n, 1);
    assert_string_equal(found.rows[0].name, "link, host to device");
    assert_true(found.rows[0].rate == 55.4e9 && found.rows[0].spread == 0.02);
    assert_int_equal(found.rows[0].when, 1700000000);
    const struct device other = {.identity = "another GPU"};
    assert_int_equal(calibrations_load(&other, s.folder, &found), OK);
    assert_int_equal(found.n, 0);
    scratch_release(&s);
}

/* A copy takes its bytes and a start: both are found from two sizes of it. */
static void a_link_is_measured_by_two_sizes(void **state)
{
    (void)state;
    const double rate = 50e9, start = 12e-6;
    const int64_t large = 16 << 20, small = 1 << 20;
    struct link_rate r =
        link_rate_of(large, (double)large / rate + start, small, (double)small / rate + start);
    assert_true(fabs(r.alone / rate - 1) < 1e-9 && fabs(r.latency_s / start - 1) < 1e-6);
    assert_true(r.both == r.alone); /* until both ways are measured */
    /* A small copy that was held up, or a large one that was not: the large one has the word. */
    r = link_rate_of(large, (double)large / rate, small, (double)large / rate);
    assert_true(fabs(r.alone / rate - 1) < 1e-9 && r.latency_s == 0);
    r = link_rate_of(large, (double)large / rate, small, 0.5 * (double)small / rate);
    assert_true(fabs(r.alone / rate - 1) < 1e-9 && r.latency_s == 0);
}

static void a_disturbed_rate_does_not_replace_a_good_one(void **state)
{
    (void)state;
    struct scratch s;
    struct calibrations bad = one(20e9, true), good = one(55e9, false), worse = one(10e9, true);
    scratch_init(&s);
    assert_int_equal(calibrations_store(&gpu, s.folder, &bad), OK);
    assert_true(kept_rate(&s) == 20e9); /* better than nothing */
    assert_int_equal(calibrations_store(&gpu, s.folder, &good), OK);
    assert_true(kept_rate(&s) == 55e9);
    assert_int_equal(calibrations_store(&gpu, s.folder, &worse), OK);
    assert_true(kept_rate(&s) == 55e9);
    scratch_release(&s);
}

static void a_spoilt_value_is_not_there(void **state)
{
    (void)state;
    static const char *const values[] = {"", "fast", "-1 0.1 1700000000 bytes",
                                         "1e30 0.1 1700000000 bytes", "5e9 0.1 soon bytes"};
    struct scratch s;
    char text[256];
    scratch_init(&s);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        (void)snprintf(text, sizeof(text), "snug-cache 1\n%s; link, host to device\t%s\n",
                       gpu.identity, values[i]);
        scratch_write_text(&s, "calibration", text);
        assert_true(kept_rate(&s) < 0);
    }
    scratch_release(&s);
}

/* Within a few seconds, whatever else the machine does. */
static void a_processor_is_measured_in_a_few_seconds(void **state)
{
    (void)state;
    struct scratch s;
    struct calibrations c;
    struct device d;
    bool disk = false, product = false;
    scratch_init(&s);
    assert_int_equal(device_open_cpu(&d, 0), OK);
    double start = now_s();
    disk_pretend(&(struct disk_pretence){.read = 4e7, .written = 2e7}); /* whose seconds are none */
    assert_int_equal(calibrate(&d, s.folder, &c), OK);
    disk_pretend(NULL);
    assert_true(now_s() - start < 30);
    for (int i = 0; i < c.n; i++) {
        assert_true(c.rows[i].rate > 0 && c.rows[i].spread >= 0 && c.rows[i].when > 0);
        disk = disk || strcmp(c.rows[i].name, "disk, read in turns with writes") == 0;
        product = product || strcmp(c.rows[i].name, "product 16384 x 1024 x 1024, bf16") == 0;
    }
    assert_true(disk && product);
    struct calibrations kept;
    assert_int_equal(calibrations_store(&d, s.folder, &c), OK);
    assert_int_equal(calibrations_load(&d, s.folder, &kept), OK);
    assert_int_equal(kept.n, c.n); /* every name that is measured is one that is shown */
    device_close(&d);
    scratch_release(&s);
}

static void ages_are_said_in_the_largest_unit(void **state)
{
    (void)state;
    const struct calibration c = {.when = 1000000};
    char text[32];
    assert_string_equal(calibration_age(&c, 1000000 + 5, text), "5 seconds");
    assert_string_equal(calibration_age(&c, 1000000 + 60, text), "1 minute");
    assert_string_equal(calibration_age(&c, 1000000 + 7300, text), "2 hours");
    assert_string_equal(calibration_age(&c, 1000000 + 3 * 86400, text), "3 days");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_is_there_for_the_next_process),
        cmocka_unit_test(a_link_is_measured_by_two_sizes),
        cmocka_unit_test(a_disturbed_rate_does_not_replace_a_good_one),
        cmocka_unit_test(a_spoilt_value_is_not_there),
        cmocka_unit_test(a_processor_is_measured_in_a_few_seconds),
        cmocka_unit_test(ages_are_said_in_the_largest_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
