/* Outputs: what stands under the name decides whether it is replaced, written into or refused; and
 * what a signal leaves of them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/output.h"
#include "base/temporary.h"
#include "support/scratch.h"

static struct scratch scratch;
static char path[SCRATCH_PATH], other[SCRATCH_PATH];

static int set_up(void **state)
{
    (void)state;
    scratch_init(&scratch);
    scratch_path(&scratch, "file", path);
    scratch_path(&scratch, "other", other);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void expect_content(const char *file, const char *content)
{
    char *text;
    size_t n;
    assert_int_equal(file_read(file, &text, &n), OK);
    assert_string_equal(text, content);
    mem_free(text);
}

static mode_t kind(const char *file)
{
    struct stat st;
    assert_int_equal(lstat(file, &st), 0);
    return st.st_mode & S_IFMT;
}

static void a_link_stays_and_its_target_is_replaced(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], deep[SCRATCH_PATH];
    scratch_write_text(&scratch, "folder/target", "old");
    assert_int_equal(symlink("folder/target", other), 0); /* relative to where the link is */
    assert_int_equal(symlink(other, path), 0);            /* absolute, to the next link */
    assert_int_equal(file_write_atomic(path, "new", 3), OK);
    assert_int_equal(kind(path), S_IFLNK);
    assert_int_equal(kind(other), S_IFLNK);
    expect_content(scratch_path(&scratch, "folder/target", folder), "new");

    assert_int_equal(symlink("not-yet", scratch_path(&scratch, "folder/link", deep)), 0);
    assert_int_equal(file_write_atomic(deep, "made", 4), OK);
    assert_int_equal(kind(deep), S_IFLNK);
    expect_content(scratch_path(&scratch, "folder/not-yet", folder), "made");
}

static void links_in_a_circle_are_an_error(void **state)
{
    (void)state;
    assert_int_equal(symlink(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(file_write_atomic(path, "x", 1), ERR_IO);
    expect_message("links");
}

static void a_pipe_is_written_into(void **state)
{
    (void)state;
    char got[8] = "";
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(file_write_atomic(path, "hello", 5), OK);
    assert_int_equal(read(reader, got, sizeof(got)), 5);
    assert_string_equal(got, "hello");
    assert_int_equal(kind(path), S_IFIFO);
    (void)close(reader);
}

static void a_device_is_written_into(void **state)
{
    (void)state;
    /* Not the system's own: a fault would replace it. */
    if (mknod(other, S_IFCHR | 0600, makedev(1, 3)) != 0)
        skip(); /* needs the right to make one */
    assert_int_equal(file_write_atomic(other, "x", 1), OK);
    assert_int_equal(kind(other), S_IFCHR);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(file_write_atomic(path, "x", 1), OK);
    assert_int_equal(kind(path), S_IFLNK);
    assert_int_equal(kind(other), S_IFCHR);
}

static void a_folder_is_refused(void **state)
{
    (void)state;
    assert_int_equal(file_make_folders(path), OK);
    assert_int_equal(file_write_atomic(path, "x", 1), ERR_IO);
    expect_message("a folder");
    assert_int_equal(kind(path), S_IFDIR);
}

/* Two processes may write one file: each writes its whole under a name of its own. */
static void a_check_writes_nothing_and_finds_what_cannot_be_written(void **state)
{
    (void)state;
    char below[SCRATCH_PATH + 8];
    assert_int_equal(output_check(path), OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(file_write_atomic(path, "old", 3), OK);
    assert_int_equal(output_check(path), OK);
    expect_content(path, "old");
    (void)snprintf(below, sizeof(below), "%s/below", path);
    assert_int_equal(output_check(below), ERR_IO);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(output_check(other), OK); /* without waiting for a reader */
}

static void a_temporary_name_belongs_to_one_process(void **state)
{
    (void)state;
    struct output o;
    assert_int_equal(output_open(&o, path), OK);
    (void)snprintf(other, sizeof(other), "%.400s.tmp-%ld", path, (long)getpid());
    assert_string_equal(o.temporary, other);
    output_abandon(&o);
    assert_false(file_exists(other));
    assert_false(file_exists(path));
}

static void what_is_noted_is_removed_and_what_is_forgotten_stays(void **state)
{
    (void)state;
    struct output o;
    char folder[SCRATCH_PATH];
    int64_t live = mem_live();
    scratch_path(&scratch, "folder", folder);
    scratch_write_text(&scratch, "folder/a", "a");
    scratch_write_text(&scratch, "folder/b", "b");
    scratch_write_text(&scratch, "other", "stays");
    temporary_note(folder);
    temporary_note(other);
    temporary_forget(other);
    assert_int_equal(output_open(&o, path), OK);
    assert_true(file_exists(o.temporary));
    temporary_remove_all();
    assert_false(file_exists(o.temporary));
    assert_false(file_exists(folder));
    assert_true(file_exists(other));
    output_abandon(&o);
    temporary_forget(folder);
    assert_int_equal(mem_live(), live);
}

static void more_notes_than_there_is_room_for_are_let_go(void **state)
{
    (void)state;
    char name[32];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "/no/such/%d", i);
        temporary_note(name);
    }
    temporary_remove_all();
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "/no/such/%d", i);
        temporary_forget(name);
    }
    scratch_write_text(&scratch, "file", "x");
    temporary_note(path);
    temporary_remove_all();
    assert_false(file_exists(path));
    temporary_forget(path);
}

static void reading_what_is_no_file_fails_at_once_and_says_what_it_is(void **state)
{
    (void)state;
    char *text;
    size_t n;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_read(path, &text, &n), ERR_IO);
    expect_message("a pipe");
    assert_int_equal(file_read("/dev/zero", &text, &n), ERR_IO);
    expect_message("a device");
    assert_int_equal(file_read(scratch.folder, &text, &n), ERR_IO);
    expect_message("a folder");
}

static void a_stream_is_read_to_its_end_or_to_a_limit(void **state)
{
    (void)state;
    char *text;
    size_t n;
    assert_int_equal(mkfifo(path, 0600), 0);
    int both = open(path, O_RDWR);
    int writer = open(path, O_WRONLY);
    assert_int_equal(write(writer, "key: 1\n", 7), 7);
    (void)close(writer);
    pid_t child = fork();
    if (child == 0) {
        (void)usleep(50000);
        _exit(0); /* its copy of `both` goes with it: the reader sees the end */
    }
    (void)close(both);
    assert_int_equal(file_read_stream(path, 100, &text, &n), OK);
    assert_string_equal(text, "key: 1\n");
    assert_int_equal(n, 7);
    mem_free(text);
    assert_int_equal(file_read_stream("/dev/zero", 100, &text, &n), ERR_IO);
    expect_message("longer than 100 bytes");
    assert_int_equal(file_read_stream("/dev/null", 100, &text, &n), OK);
    assert_string_equal(text, "");
    mem_free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_link_stays_and_its_target_is_replaced),
        TEST(links_in_a_circle_are_an_error),
        TEST(a_pipe_is_written_into),
        TEST(a_device_is_written_into),
        TEST(a_folder_is_refused),
        TEST(a_check_writes_nothing_and_finds_what_cannot_be_written),
        TEST(a_temporary_name_belongs_to_one_process),
        TEST(what_is_noted_is_removed_and_what_is_forgotten_stays),
        TEST(more_notes_than_there_is_room_for_are_let_go),
        TEST(reading_what_is_no_file_fails_at_once_and_says_what_it_is),
        TEST(a_stream_is_read_to_its_end_or_to_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
