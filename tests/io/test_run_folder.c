/* Ids of runs compare as the runs came; a folder is locked and claimed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "io/run_folder.h"
#include "support/golden.h"
#include "support/scratch.h"

static void every_id_comes_after_the_one_it_is_asked_to(void **state)
{
    (void)state;
    char id[RUN_ID_TEXT], next[RUN_ID_TEXT];
    expect_ok(run_id_make(id, ""));
    assert_true(run_id_is_valid(id));
    for (int i = 0; i < 1000; i++) { /* many in a microsecond, if need be */
        expect_ok(run_id_make(next, id));
        assert_true(run_id_is_valid(next));
        assert_true(strcmp(next, id) > 0);
        memcpy(id, next, sizeof(id));
    }
    /* Made by a clock that is ahead. */
    static const char *const ahead[][2] = {
        {"29991231-235959-000009-ffffffff", "29991231-235959-000010-"},
        {"29991231-235959-999999-ffffffff", "29991231-235960-000000-"},
    };
    for (size_t i = 0; i < ARRAY_LEN(ahead); i++) {
        expect_ok(run_id_make(next, ahead[i][0]));
        assert_memory_equal(next, ahead[i][1], strlen(ahead[i][1]));
    }
}

static void only_ids_are_taken_for_ids(void **state)
{
    (void)state;
    static const char *const others[] = {NULL,
                                         "",
                                         "20261115",
                                         "20261115-170912-000000-8f3ac21/",
                                         "../../../../../../../../../../x",
                                         "20261115-170912-403127-8f3ac21b0"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_false(run_id_is_valid(others[i]));
    assert_true(run_id_is_valid("20261115-170912-403127-8f3ac21b"));
}

static void a_folder_is_one_runs_at_a_time_and_says_whose(void **state)
{
    (void)state;
    struct scratch s;
    struct run_folder f, second;
    char id[RUN_ID_TEXT], path[SCRATCH_PATH], *what;
    scratch_init(&s);
    scratch_path(&s, "out", path);
    expect_ok(run_id_make(id, ""));
    expect_ok(run_folder_open(&f, path));
    assert_string_equal(f.owner, "");
    assert_int_equal(run_folder_open(&second, path), ERR_USAGE);
    expect_message("is training in this folder");
    expect_ok(run_folder_claim(&f, id));
    scratch_write_text(&s, "out/metrics.jsonl", "{\"kind\":\"config\"}\n");
    run_folder_close(&f);
    expect_ok(run_folder_open(&second, path));
    assert_string_equal(second.owner, id);
    expect_ok(run_folder_find_other(&second, id, &what));
    assert_null(what);
    expect_ok(run_folder_find_other(&second, "20261115-170912-403127-8f3ac21b", &what));
    assert_string_equal(what, RUN_FOLDER_METRICS);
    mem_free(what);
    run_folder_close(&second);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_id_comes_after_the_one_it_is_asked_to),
        cmocka_unit_test(only_ids_are_taken_for_ids),
        cmocka_unit_test(a_folder_is_one_runs_at_a_time_and_says_whose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
