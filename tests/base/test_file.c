/* Files: whole reads, atomic writes that leave the old file on any failure, folders, JSON errors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "support/scratch.h"

static int set_up(void **state)
{
    struct scratch *s = calloc(1, sizeof(*s));
    scratch_init(s);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    file_fail_after(0);
    scratch_release(*state);
    free(*state);
    return 0;
}

static void expect_content(const char *path, const char *want)
{
    char *text;
    size_t n;
    assert_int_equal(file_read(path, &text, &n), OK);
    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
    mem_free(text);
}

static void files_are_read_and_mapped_whole(void **state)
{
    char path[SCRATCH_PATH];
    struct file_map m;
    scratch_write(*state, "data", "a\0b", 3);
    assert_int_equal(file_map_open(&m, scratch_path(*state, "data", path)), OK);
    assert_int_equal(m.n_bytes, 3);
    assert_memory_equal(m.data, "a\0b", 3);
    file_map_close(&m);
    assert_null(m.data);
    scratch_write(*state, "empty", "", 0);
    assert_int_equal(file_map_open(&m, scratch_path(*state, "empty", path)), OK);
    assert_int_equal(m.n_bytes, 0);
    assert_null(m.data);
    file_map_close(&m);
    expect_content(path, "");
}

static void what_cannot_be_read_is_named(void **state)
{
    char path[SCRATCH_PATH], *text;
    struct file_map m;
    assert_int_equal(file_read(scratch_path(*state, "missing", path), &text, NULL), ERR_IO);
    assert_null(text);
    expect_message(path);
    expect_message("No such file");
    const struct scratch *s = *state;
    assert_int_equal(file_map_open(&m, s->folder), ERR_IO);
    expect_message("where a regular file is needed");
    scratch_write_text(s, "f", "text");
    mem_fail_after(1, 0);
    assert_int_equal(file_read(scratch_path(s, "f", path), &text, NULL), ERR_MEMORY);
    mem_fail_after(0, 0);
    assert_null(text);
}

static void bytes_written_are_counted(void **state)
{
    char path[SCRATCH_PATH];
    struct file_out f;
    scratch_path(*state, "out", path);
    assert_int_equal(file_out_open(&f, path), OK);
    assert_int_equal(file_out_write(&f, "hello", 5), OK);
    assert_int_equal(file_out_write(&f, "", 0), OK);
    assert_int_equal(f.n_bytes, 5);
    assert_int_equal(file_out_sync(&f), OK);
    assert_int_equal(file_out_close(&f), OK);
    assert_int_equal(file_out_close(&f), OK); /* safe on a closed one */
    assert_int_equal(file_out_append(&f, path), OK);
    assert_int_equal(file_out_write(&f, "!", 1), OK);
    assert_int_equal(file_out_close(&f), OK);
    expect_content(path, "hello!");
}

static void an_atomic_write_is_all_or_nothing(void **state)
{
    char path[SCRATCH_PATH], temporary[SCRATCH_PATH + 32];
    scratch_path(*state, "file", path);
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp-%ld", path, (long)getpid());
    assert_int_equal(file_write_atomic(path, "old", 3), OK);
    int n_failures = 0;
    for (int64_t n = 1;; n++) {
        file_fail_after(n);
        enum status s = file_write_atomic(path, "new", 3);
        file_fail_after(0);
        assert_false(file_exists(temporary));
        if (s == OK)
            break;
        assert_int_equal(s, ERR_IO);
        expect_message("disk is full");
        expect_content(path, "old");
        n_failures++;
    }
    assert_int_equal(n_failures, 4); /* create, write, sync, rename */
    expect_content(path, "new");
}

static void folders_are_made_and_removed_with_all_in_them(void **state)
{
    char path[SCRATCH_PATH], top[SCRATCH_PATH], file[SCRATCH_PATH], outside[SCRATCH_PATH];
    scratch_path(*state, "a/b//c", path);
    scratch_path(*state, "a", top);
    assert_int_equal(file_make_folders(path), OK);
    assert_int_equal(file_make_folders(path), OK); /* again is fine */
    assert_true(file_is_folder(path));
    assert_int_equal(file_sync_folder(top), OK);
    scratch_write_text(*state, "a/b/file", "x");
    scratch_write_text(*state, "outside", "kept");
    scratch_path(*state, "outside", outside);
    assert_int_equal(symlink(outside, scratch_path(*state, "a/b/link", file)), 0);
    assert_int_equal(file_make_folders(scratch_path(*state, "a/b/file", file)), ERR_IO);
    expect_message(file);
    assert_int_equal(file_make_folders(scratch_path(*state, "a/b/file/x", file)), ERR_IO);
    assert_int_equal(file_make_folders(""), ERR_IO);
    assert_int_equal(file_remove_tree(top), OK);
    assert_false(file_exists(top));
    expect_content(outside, "kept");             /* links are removed, not followed */
    assert_int_equal(file_remove_tree(top), OK); /* a missing one is fine */
    assert_int_equal(file_sync_folder(top), ERR_IO);
}

static void renames_and_syncs_can_be_made_to_fail(void **state)
{
    char from[SCRATCH_PATH], to[SCRATCH_PATH];
    const struct scratch *s = *state;
    scratch_write_text(s, "from", "x");
    scratch_path(s, "from", from);
    scratch_path(s, "to", to);
    file_fail_after(1);
    assert_int_equal(file_rename(from, to), ERR_IO);
    expect_message("disk is full");
    assert_int_equal(file_rename(from, to), OK); /* only the first */
    file_fail_after(1);
    assert_int_equal(file_sync_folder(s->folder), ERR_IO);
    assert_int_equal(file_sync_folder(s->folder), OK);
    assert_int_equal(file_rename(from, to), ERR_IO);
    expect_message("No such file");
}

static void json_errors_say_where(void **state)
{
    char path[SCRATCH_PATH];
    json_t *j;
    assert_int_equal(json_read_text(&j, "{\"a\": [1, 2]}", 13, "text", ERR_DATA), OK);
    assert_int_equal(json_array_size(json_object_get(j, "a")), 2);
    json_decref(j);
    assert_int_equal(json_read_text(&j, "{\"a\": 1,\n \"a\": 2}", 17, "text", ERR_CONFIG),
                     ERR_CONFIG);
    expect_message("text");
    scratch_write_text(*state, "bad.json", "{\n  \"a\": ]\n}");
    assert_int_equal(json_read_file(&j, scratch_path(*state, "bad.json", path), ERR_DATA),
                     ERR_DATA);
    expect_message(path);
    expect_message("2");
    assert_int_equal(json_read_file(&j, scratch_path(*state, "none.json", path), ERR_DATA), ERR_IO);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(files_are_read_and_mapped_whole),
        WITH_FOLDER(what_cannot_be_read_is_named),
        WITH_FOLDER(bytes_written_are_counted),
        WITH_FOLDER(an_atomic_write_is_all_or_nothing),
        WITH_FOLDER(folders_are_made_and_removed_with_all_in_them),
        WITH_FOLDER(renames_and_syncs_can_be_made_to_fail),
        WITH_FOLDER(json_errors_say_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
