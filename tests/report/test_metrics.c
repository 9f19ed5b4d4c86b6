/* metrics.jsonl: lines are whole, appended, and survive torn files and failures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "report/metrics.h"
#include "support/scratch.h"

static void expect_file(const char *path, const char *want)
{
    char *text;
    assert_int_equal(file_read(path, &text, NULL), OK);
    assert_string_equal(text, want);
    mem_free(text);
}

static enum status write_line(struct metrics *m, const char *json)
{
    json_t *object;
    TRY(json_read_text(&object, json, strlen(json), "line", ERR_DATA));
    enum status status = metrics_write(m, object);
    json_decref(object);
    return status;
}

static void objects_become_compact_lines_at_once(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    struct metrics m;
    assert_int_equal(metrics_open(&m, scratch_path(&s, "metrics.jsonl", path)), OK);
    expect_file(path, "");
    assert_int_equal(write_line(&m, "{ \"kind\": \"step\", \"step\": 1, \"loss\": 2.5 }"), OK);
    /* Seen before closing: nothing is buffered; keys keep their order. */
    expect_file(path, "{\"kind\":\"step\",\"step\":1,\"loss\":2.5}\n");
    assert_int_equal(write_line(&m, "{\"text\":\"two\\nlines \xc3\xa9\",\"mem\":{\"a\":[1,2]}}"),
                     OK);
    assert_int_equal(metrics_sync(&m), OK);
    assert_int_equal(metrics_close(&m), OK);
    expect_file(path, "{\"kind\":\"step\",\"step\":1,\"loss\":2.5}\n"
                      "{\"text\":\"two\\nlines \xc3\xa9\",\"mem\":{\"a\":[1,2]}}\n");
    assert_int_equal(metrics_close(&m), OK);
    scratch_release(&s);
    assert_int_equal(mem_live(), live);
}

static void a_resumed_run_appends(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    scratch_path(&s, "m", path);
    for (int i = 0; i < 2; i++) {
        struct metrics m;
        assert_int_equal(metrics_open(&m, path), OK);
        assert_int_equal(write_line(&m, "{\"a\":1}"), OK);
        assert_int_equal(metrics_close(&m), OK);
    }
    expect_file(path, "{\"a\":1}\n{\"a\":1}\n");
    scratch_release(&s);
}

static void a_file_that_is_removed_is_made_anew(void **state)
{
    (void)state;
    struct scratch s;
    struct metrics m;
    scratch_init(&s);
    char path[SCRATCH_PATH], folder[SCRATCH_PATH];
    scratch_path(&s, "run/m", path);
    assert_int_equal(file_make_folders(scratch_path(&s, "run", folder)), OK);
    assert_int_equal(metrics_open(&m, path), OK);
    assert_int_equal(write_line(&m, "{\"a\":1}"), OK);
    assert_int_equal(file_remove_tree(folder), OK);
    assert_int_equal(write_line(&m, "{\"a\":2}"), OK);
    assert_int_equal(write_line(&m, "{\"a\":3}"), OK);
    assert_int_equal(metrics_close(&m), OK);
    expect_file(path, "{\"a\":2}\n{\"a\":3}\n");
    scratch_release(&s);
}

static void a_torn_last_line_is_closed_on_opening(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    scratch_write_text(&s, "m", "{\"a\":1}\n{\"a\":");
    struct metrics m;
    assert_int_equal(metrics_open(&m, scratch_path(&s, "m", path)), OK);
    assert_int_equal(write_line(&m, "{\"a\":3}"), OK);
    assert_int_equal(metrics_close(&m), OK);
    expect_file(path, "{\"a\":1}\n{\"a\":\n{\"a\":3}\n");
    scratch_release(&s);
}

static void numbers_keep_every_digit_and_nan_becomes_null(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    struct metrics m;
    const double loss = 1.0 / 3.0 * 7.0;
    assert_int_equal(metrics_open(&m, scratch_path(&s, "m", path)), OK);
    json_t *object = json_object();
    assert_int_equal(json_object_set_new(object, "loss", json_finite(loss)), 0);
    assert_int_equal(json_object_set_new(object, "nan", json_finite((double)NAN)), 0);
    assert_int_equal(json_object_set_new(object, "inf", json_finite((double)-INFINITY)), 0);
    assert_int_equal(metrics_write(&m, object), OK);
    json_decref(object);
    assert_int_equal(metrics_close(&m), OK);
    assert_int_equal(json_read_file(&object, path, ERR_DATA), OK);
    assert_true(json_real_value(json_object_get(object, "loss")) == loss);
    assert_true(json_is_null(json_object_get(object, "nan")));
    assert_true(json_is_null(json_object_get(object, "inf")));
    json_decref(object);
    scratch_release(&s);
}

static void only_objects_are_lines(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    struct metrics m;
    assert_int_equal(metrics_open(&m, scratch_path(&s, "m", path)), OK);
    assert_int_equal(write_line(&m, "[1]"), ERR_INTERNAL);
    assert_int_equal(metrics_write(&m, NULL), ERR_INTERNAL);
    assert_int_equal(metrics_close(&m), OK);
    expect_file(path, "");
    scratch_release(&s);
}

static enum status write_some(const char *path)
{
    struct metrics m;
    TRY(metrics_open(&m, path));
    enum status status;
    TRY_GOTO(write_line(&m, "{\"a\":1}"), out);
    TRY_GOTO(metrics_sync(&m), out);
out:
    if (status != OK)
        (void)!metrics_close(&m);
    else
        status = metrics_close(&m);
    return status;
}

static void failures_of_memory_and_disk_are_reported(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    scratch_path(&s, "m", path);
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        mem_fail_after(n, n % 2 == 0);
        enum status status = write_some(path);
        mem_fail_after(0, 0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
    }
    assert_true(n > 2);
    for (n = 1;; n++) {
        scratch_write_text(&s, "m", "torn");
        file_fail_after(n);
        enum status status = write_some(path);
        file_fail_after(0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_IO);
        expect_message(path);
    }
    assert_int_equal(n, 5); /* open, newline, line, sync */
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_become_compact_lines_at_once),
        cmocka_unit_test(a_resumed_run_appends),
        cmocka_unit_test(a_file_that_is_removed_is_made_anew),
        cmocka_unit_test(a_torn_last_line_is_closed_on_opening),
        cmocka_unit_test(numbers_keep_every_digit_and_nan_becomes_null),
        cmocka_unit_test(only_objects_are_lines),
        cmocka_unit_test(failures_of_memory_and_disk_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
