/* What runs held beside their arenas is what plans of later processes count with, at the least. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "device/beside.h"
#include "search/surroundings.h"
#include "support/golden.h"
#include "support/scratch.h"

#define MIB ((int64_t)1 << 20)

static struct device_ops ops; /* of a device whose memory is apart */

static int set_up(void **state)
{
    static struct scratch scratch;
    scratch_init(&scratch);
    *state = &scratch;
    ops = (struct device_ops){.memory_is_apart = true};
    return 0;
}

static int tear_down(void **state)
{
    scratch_release(*state);
    return 0;
}

static struct device device_called(const char *identity)
{
    struct device d = {.ops = &ops};
    (void)snprintf(d.identity, sizeof(d.identity), "%s", identity);
    return d;
}

/* As another process would find it. */
static int64_t found(const struct scratch *s, const char *identity)
{
    struct device d = device_called(identity);
    beside_load(&d, s->folder);
    return d.beside_bytes;
}

static void hold(const struct scratch *s, const char *identity, int64_t n_bytes)
{
    struct device d = device_called(identity);
    beside_store(&d, s->folder, n_bytes);
}

static void the_least_of_all_runs_is_kept_for_each_device(void **state)
{
    assert_int_equal(found(*state, "one"), 0);
    hold(*state, "one", 900 * MIB);
    hold(*state, "other", 100 * MIB);
    assert_int_equal(found(*state, "one"), 900 * MIB);
    hold(*state, "one", 950 * MIB); /* planning had left its traces */
    assert_int_equal(found(*state, "one"), 900 * MIB);
    hold(*state, "one", 800 * MIB);
    assert_int_equal(found(*state, "one"), 800 * MIB);
    assert_int_equal(found(*state, "other"), 100 * MIB);
}

static void what_makes_no_sense_is_not_kept(void **state)
{
    hold(*state, "one", 0);
    hold(*state, "one", -5);
    hold(*state, "one", (int64_t)1 << 50);
    assert_int_equal(found(*state, "one"), 0);
    ops.memory_is_apart = false; /* there the process is what its arenas are in */
    hold(*state, "one", 900 * MIB);
    ops.memory_is_apart = true;
    assert_int_equal(found(*state, "one"), 0);
    hold(*state, "one", 900 * MIB);
    ops.memory_is_apart = false;
    assert_int_equal(found(*state, "one"), 0);
}

static void plans_count_with_what_will_be_held(void **state)
{
    struct device d = device_called("one");
    struct surroundings s;
    (void)state;
    surroundings_read(&s, &d);
    int64_t now = s.resident_bytes;
    assert_true(now > 0 && now < 4096 * MIB);
    d.beside_bytes = now + 4096 * MIB;
    surroundings_read(&s, &d);
    assert_int_equal(s.resident_bytes, d.beside_bytes);
    d.beside_bytes = 1;
    surroundings_read(&s, &d);
    assert_true(s.resident_bytes > MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_least_of_all_runs_is_kept_for_each_device, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_not_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plans_count_with_what_will_be_held, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("beside", tests, NULL, NULL);
}
