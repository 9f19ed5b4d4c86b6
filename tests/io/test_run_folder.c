/* Ids of runs: what says which of two runs is the newer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "io/run_folder.h"

static void ids_are_in_the_order_of_their_runs(void **state)
{
    (void)state;
    char before[RUN_ID_TEXT], after[RUN_ID_TEXT];
    assert_int_equal(run_id_make(before), OK);
    for (int i = 0; i < 200; i++) {
        struct timespec pause = {.tv_nsec = 2000}; /* far less than any run takes */
        (void)nanosleep(&pause, NULL);
        assert_int_equal(run_id_make(after), OK);
        assert_true(run_id_is_valid(after));
        assert_true(strcmp(before, after) < 0);
        memcpy(before, after, sizeof(before));
    }
}

static void what_is_no_id_is_seen(void **state)
{
    (void)state;
    assert_false(run_id_is_valid(NULL));
    assert_false(run_id_is_valid(""));
    assert_false(run_id_is_valid("20261115-170912-000000-8f3ac21"));
    assert_false(run_id_is_valid("20261115-170912-000000-8f3ac21/"));
    assert_true(run_id_is_valid("20261115-170912-000000-8f3ac21b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_in_the_order_of_their_runs),
        cmocka_unit_test(what_is_no_id_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
