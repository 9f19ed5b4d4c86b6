/* What is said when a device has too little free memory: arithmetic and text, without a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "device/room.h"
#include "support/scratch.h"

#define GIB ((int64_t)1 << 30)

static struct device_room crowded(void)
{
    return (struct device_room){.whose = "the GPU",
                                .total_bytes = 140 * GIB,
                                .free_bytes = 12 * GIB,
                                .own_bytes = GIB / 2,
                                .sees_processes = true,
                                .n_holders = 2,
                                .holders = {{4711, 7 * GIB, ""}, {815, 120 * GIB, "python3"}}};
}

static void free_and_own_memory_can_be_had(void **state)
{
    (void)state;
    struct device_room r = crowded();
    assert_int_equal(room_available(&r), 12 * GIB + GIB / 2);
    assert_int_equal(room_others(&r), 127 * GIB + GIB / 2);
}

static void the_message_says_need_free_holders_and_the_budget_that_fits(void **state)
{
    (void)state;
    struct device_room r = crowded();
    room_sort(&r);
    assert_int_equal(room_refuse(&r, "training", 50 * GIB), ERR_FIT);
    expect_message("does not fit: training needs 50.00 GiB (53687091200 bytes)");
    expect_message("only 12.50 GiB (13421772800 bytes) of the GPU's 140.00 GiB are free");
    expect_message("process 815 (python3) holds 120.00 GiB, process 4711 holds 7.00 GiB");
    expect_message("device_memory: 12800MiB");
    expect_message("End what holds the rest");
}

static void holders_are_listed_largest_first_and_few(void **state)
{
    (void)state;
    struct device_room r = {.total_bytes = 100 * GIB, .sees_processes = true, .n_holders = 6};
    for (int i = 0; i < 6; i++)
        r.holders[i] = (struct device_holder){100 + i, (i + 1) * GIB, ""};
    r.free_bytes = 79 * GIB;
    struct str s = {0};
    room_sort(&r);
    room_add_holders(&r, &s);
    assert_string_equal(str_text(&s),
                        "process 105 holds 6.00 GiB, process 104 holds 5.00 GiB, process 103 holds "
                        "4.00 GiB, process 102 holds 3.00 GiB, 2 more 3.00 GiB");
    str_release(&s);
}

static void holders_that_cannot_be_seen_are_a_sum(void **state)
{
    (void)state;
    struct device_room r = crowded();
    struct str s = {0};
    r.sees_processes = false;
    room_add_holders(&r, &s);
    assert_string_equal(str_text(&s),
                        "used by others: 127.50 GiB (processes not visible from here)");
    str_clear(&s);
    /* Some seen, some not: both. */
    r = crowded();
    r.n_holders = 1;
    room_add_holders(&r, &s);
    assert_string_equal(str_text(&s), "process 4711 holds 7.00 GiB, used by others: 120.50 GiB "
                                      "(processes not visible from here)");
    str_release(&s);
}

static void a_device_of_our_own_names_nobody(void **state)
{
    (void)state;
    struct device_room r = {.whose = "the GPU",
                            .total_bytes = 16 * GIB,
                            .free_bytes = 15 * GIB,
                            .own_bytes = GIB / 2,
                            .sees_processes = true};
    struct str s = {0};
    room_add_holders(&r, &s);
    assert_int_equal(s.n, 0);
    str_release(&s);
    assert_int_equal(room_refuse(&r, "training", 20 * GIB), ERR_FIT);
    expect_message("of the GPU's 16.00 GiB are free. Make the model smaller");
}

/* ---- the host's memory --------------------------------------------------------------------- */

static void expect_said(const char *part)
{
    if (!strstr(status_message(), part))
        fail_msg("'%s' is not in: %s", part, status_message());
}

static void memory_that_the_system_refuses_is_told_with_bytes_and_the_fix(void **state)
{
    (void)state;
    assert_int_equal(room_refuse_host("the host arena", 3 * GIB, "Cannot allocate memory"),
                     ERR_FIT);
    expect_said("the host arena needs 3.00 GiB (3221225472 bytes) of host memory");
    expect_said("(Cannot allocate memory)");
    expect_said("plan for host_memory: ");
}

static void memory_that_cannot_be_pinned_names_the_limit(void **state)
{
    (void)state;
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    low = (struct rlimit){65536, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    assert_int_equal(room_refuse_pinned("the host arena", 3 * GIB, "out of memory"), ERR_FIT);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    expect_said("3.00 GiB (3221225472 bytes)");
    expect_said("this process may lock 64.00 KiB: raise the limit (ulimit -l unlimited)");
    expect_said("plan for host_memory: 64KiB");
    low.rlim_cur = before.rlim_max;
    if (low.rlim_cur != RLIM_INFINITY || setrlimit(RLIMIT_MEMLOCK, &low) != 0)
        return;
    assert_int_equal(room_refuse_pinned("the host arena", 3 * GIB, "out of memory"), ERR_FIT);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    expect_said("end what has pinned the rest, or plan for less with host_memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_the_system_refuses_is_told_with_bytes_and_the_fix),
        cmocka_unit_test(memory_that_cannot_be_pinned_names_the_limit),
        cmocka_unit_test(free_and_own_memory_can_be_had),
        cmocka_unit_test(the_message_says_need_free_holders_and_the_budget_that_fits),
        cmocka_unit_test(holders_are_listed_largest_first_and_few),
        cmocka_unit_test(holders_that_cannot_be_seen_are_a_sum),
        cmocka_unit_test(a_device_of_our_own_names_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
