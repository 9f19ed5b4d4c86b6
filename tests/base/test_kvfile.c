/* Cache files: kept, merged, and never trusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/kvfile.h"
#include "base/log.h"
#include "support/scratch.h"

static struct scratch scratch;
static char path[SCRATCH_PATH];

static int setup(void **state)
{
    (void)state;
    scratch_init(&scratch);
    (void)scratch_path(&scratch, "a/b/cache", path);
    log_set_level(LOG_ERROR);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void put_file(const char *text, size_t n)
{
    char parent[SCRATCH_PATH];
    (void)scratch_path(&scratch, "a/b", parent);
    assert_int_equal(file_make_folders(parent), OK);
    assert_int_equal(file_write_atomic(path, text, n), OK);
}

static void what_is_put_is_there_in_the_next_run(void **state)
{
    (void)state;
    struct kvfile *f;
    assert_int_equal(kvfile_open(&f, path), OK);
    assert_null(kvfile_get(f, "x"));
    assert_int_equal(kvfile_put(f, "x", "1"), OK);
    assert_int_equal(kvfile_put(f, "gpu 9.0 m=3", "a b c"), OK);
    assert_int_equal(kvfile_put(f, "x", "2"), OK);
    assert_int_equal(kvfile_save(f), OK);
    kvfile_free(f);
    assert_int_equal(kvfile_open(&f, path), OK);
    assert_string_equal(kvfile_get(f, "x"), "2");
    assert_string_equal(kvfile_get(f, "gpu 9.0 m=3"), "a b c");
    assert_null(kvfile_get(f, "y"));
    kvfile_free(f);
}

static void two_writers_keep_each_others_entries(void **state)
{
    (void)state;
    struct kvfile *f, *g;
    assert_int_equal(kvfile_open(&f, path), OK);
    assert_int_equal(kvfile_open(&g, path), OK);
    assert_int_equal(kvfile_put(f, "f", "1"), OK);
    assert_int_equal(kvfile_put(g, "g", "2"), OK);
    assert_int_equal(kvfile_put(f, "both", "of f"), OK);
    assert_int_equal(kvfile_put(g, "both", "of g"), OK);
    assert_int_equal(kvfile_save(f), OK);
    assert_int_equal(kvfile_save(g), OK);
    kvfile_free(f);
    kvfile_free(g);
    assert_int_equal(kvfile_open(&f, path), OK);
    assert_string_equal(kvfile_get(f, "f"), "1");
    assert_string_equal(kvfile_get(f, "g"), "2");
    assert_string_equal(kvfile_get(f, "both"), "of g");
    kvfile_free(f);
}

static void a_damaged_file_counts_as_empty_and_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } damaged[] = {
        {"", 0},
        {"snug-cache 2\na\t1\n", 17},
        {"snug-cache 1\na\t1", 16},
        {"snug-cache 1\na 1\n", 17},
        {"snug-cache 1\n\t1\n", 16},
        {"snug-cache 1\na\t\n", 16},
        {"snug-cache 1\na\t1\na\t2\n", 21},
        {"snug-cache 1\nb\t1\na\t2\n", 21},
        {"snug-cache 1\nab\t1\na\t2\n", 22},
        {"snug-cache 1\na\t1\0\n", 18},
        {"snug-cache 1\na\t\xff\n", 17},
    };
    for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        struct kvfile *f;
        put_file(damaged[i].text, damaged[i].n);
        assert_int_equal(kvfile_open(&f, path), OK);
        assert_null(kvfile_get(f, "a"));
        assert_null(kvfile_get(f, "b"));
        assert_int_equal(kvfile_put(f, "new", "1"), OK);
        assert_int_equal(kvfile_save(f), OK);
        kvfile_free(f);
        assert_int_equal(kvfile_open(&f, path), OK);
        assert_string_equal(kvfile_get(f, "new"), "1");
        kvfile_free(f);
    }
}

static void what_a_line_cannot_hold_is_refused(void **state)
{
    (void)state;
    char longest[KVFILE_VALUE_MOST + 2];
    struct kvfile *f;
    memset(longest, 'x', sizeof(longest));
    longest[KVFILE_VALUE_MOST + 1] = '\0';
    assert_int_equal(kvfile_open(&f, path), OK);
    assert_int_equal(kvfile_put(f, "a\tb", "1"), ERR_USAGE);
    assert_int_equal(kvfile_put(f, "a", "1\n2"), ERR_USAGE);
    assert_int_equal(kvfile_put(f, "", "1"), ERR_USAGE);
    assert_int_equal(kvfile_put(f, "a", longest), ERR_USAGE);
    assert_null(kvfile_get(f, "a"));
    kvfile_free(f);
}

static void many_entries_stay_in_order(void **state)
{
    (void)state;
    struct kvfile *f;
    char key[32], value[32];
    assert_int_equal(kvfile_open(&f, path), OK);
    for (int i = 0; i < 500; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i * 7919 % 500);
        (void)snprintf(value, sizeof(value), "%d", i * 7919 % 500);
        assert_int_equal(kvfile_put(f, key, value), OK);
    }
    assert_int_equal(kvfile_save(f), OK);
    kvfile_free(f);
    assert_int_equal(kvfile_open(&f, path), OK);
    for (int i = 0; i < 500; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i);
        (void)snprintf(value, sizeof(value), "%d", i);
        assert_string_equal(kvfile_get(f, key), value);
    }
    kvfile_free(f);
}

static int64_t number_of(const char *value)
{
    return strtoll(value, NULL, 10);
}

/* Those that were put first go, whoever put them; a key has one line however often it is put. */
static void a_bound_drops_the_oldest(void **state)
{
    (void)state;
    struct kvfile *f;
    char key[32], value[32];
    static const char others[] = "snug-cache 1\nof another\t5\nof old\t-1\n";
    put_file(others, strlen(others));
    assert_int_equal(kvfile_open(&f, path), OK);
    kvfile_bound(f, 8, number_of);
    for (int i = 0; i < 60; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i * 7 % 20);
        (void)snprintf(value, sizeof(value), "%d", i);
        assert_int_equal(kvfile_put(f, key, value), OK);
    }
    assert_int_equal(kvfile_save(f), OK);
    kvfile_free(f);
    assert_int_equal(kvfile_open(&f, path), OK);
    for (int i = 40; i < 60; i++) { /* the last round of the twenty */
        (void)snprintf(key, sizeof(key), "key %d", i * 7 % 20);
        if (i < 54)
            assert_null(kvfile_get(f, key));
        else
            assert_int_equal(number_of(kvfile_get(f, key)), i);
    }
    assert_null(kvfile_get(f, "of another"));
    assert_null(kvfile_get(f, "of old"));
    kvfile_free(f);
}

static void of_equals_enough_go(void **state)
{
    (void)state;
    struct kvfile *f;
    char key[32], *text;
    size_t n_bytes, n_lines = 0;
    assert_int_equal(kvfile_open(&f, path), OK);
    kvfile_bound(f, 8, number_of);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i);
        assert_int_equal(kvfile_put(f, key, "1"), OK);
    }
    assert_int_equal(kvfile_save(f), OK);
    kvfile_free(f);
    assert_int_equal(file_read(path, &text, &n_bytes), OK);
    for (size_t i = 0; i < n_bytes; i++)
        n_lines += text[i] == '\n';
    mem_free(text);
    assert_int_equal(n_lines, 1 + 6);
}

static void running_out_of_memory_loses_nothing(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 64; n++) {
        int64_t live = mem_live();
        struct kvfile *f = NULL;
        put_file("snug-cache 1\na\t1\nb\t2\n", 21);
        mem_fail_after(n, 1);
        enum status s = kvfile_open(&f, path);
        if (s == OK)
            s = kvfile_put(f, "c", "3");
        if (s == OK)
            s = kvfile_save(f);
        mem_fail_after(0, 0);
        kvfile_free(f);
        assert_int_equal(mem_live(), live);
        assert_true(s == OK || s == ERR_MEMORY);
        if (s == OK)
            return;
    }
    fail_msg("never succeeded");
}

/* Neither waits for a writer or a reader, nor takes the pipe's place. */
static void a_pipe_in_its_place_is_left_alone(void **state)
{
    (void)state;
    struct kvfile *f;
    struct stat st;
    char parent[SCRATCH_PATH];
    assert_int_equal(file_make_folders(scratch_path(&scratch, "a/b", parent)), OK);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(kvfile_open(&f, path), OK);
    assert_int_equal(kvfile_put(f, "x", "1"), OK);
    assert_string_equal(kvfile_get(f, "x"), "1");
    assert_int_equal(kvfile_save(f), OK);
    kvfile_free(f);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_put_is_there_in_the_next_run, setup, teardown),
        cmocka_unit_test_setup_teardown(two_writers_keep_each_others_entries, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_counts_as_empty_and_is_replaced, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_a_line_cannot_hold_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(many_entries_stay_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bound_drops_the_oldest, setup, teardown),
        cmocka_unit_test_setup_teardown(of_equals_enough_go, setup, teardown),
        cmocka_unit_test_setup_teardown(running_out_of_memory_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pipe_in_its_place_is_left_alone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
