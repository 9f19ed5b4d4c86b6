/* Where commands write: never over what they read, never in the place of a device or a link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "support/process.h"

static char config[SCRATCH_PATH], text[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml", "report_to: none\n", config);
    scratch_write_text(&scratch, "texts/a.txt", "some text to be read\n");
    scratch_path(&scratch, "texts/a.txt", text);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void expect_content(const char *path, const char *content)
{
    char *found;
    size_t n;
    assert_int_equal(file_read(path, &found, &n), OK);
    assert_string_equal(found, content);
    mem_free(found);
}

static void tokenize_refuses_an_output_that_it_reads(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], pattern[SCRATCH_PATH], linked[SCRATCH_PATH];
    scratch_path(&scratch, "texts", folder);
    scratch_path(&scratch, "texts/*.txt", pattern);
    assert_int_equal(link(text, scratch_path(&scratch, "same", linked)), 0);
    const char *const inputs[] = {text, folder, pattern, linked};
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "tokenize", config, inputs[i], "-o", text);
        expect_exit(&p, 2);
        expect_stderr(&p, "the output is one of the inputs");
        expect_content(text, "some text to be read\n");
        process_release(&p);
    }
}

static void no_command_writes_over_its_config(void **state)
{
    (void)state;
    struct process p;
    char *before, *after;
    size_t n;
    assert_int_equal(file_read(config, &before, &n), OK);
    PROCESS_RUN(&p, &scratch, "tokenize", config, text, "-o", config);
    expect_exit(&p, 2);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", config, "max_steps=1", "--svg", config);
    expect_exit(&p, 2);
    expect_stderr(&p, "the config itself");
    process_release(&p);
    assert_int_equal(file_read(config, &after, &n), OK);
    assert_string_equal(after, before);
    mem_free(before);
    mem_free(after);
}

static void a_link_stays_what_it_is(void **state)
{
    (void)state;
    struct process p;
    struct stat st;
    char link[SCRATCH_PATH], target[SCRATCH_PATH];
    assert_int_equal(symlink("target.bin", scratch_path(&scratch, "link.bin", link)), 0);
    PROCESS_RUN(&p, &scratch, "tokenize", config, text, "-o", link);
    expect_exit(&p, 0);
    process_release(&p);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_true(file_exists(scratch_path(&scratch, "target.bin", target)));
}

static void a_device_stays_what_it_is(void **state)
{
    (void)state;
    struct process p;
    struct stat st;
    char null[SCRATCH_PATH]; /* not the system's own: a fault would replace it */
    if (mknod(scratch_path(&scratch, "null", null), S_IFCHR | 0600, makedev(1, 3)) != 0)
        skip(); /* needs the right to make one */
    PROCESS_RUN(&p, &scratch, "tokenize", config, text, "-o", null);
    expect_exit(&p, 0);
    process_release(&p);
    assert_int_equal(lstat(null, &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

static void an_export_replaces_another_only_by_force(void **state)
{
    (void)state;
    struct process p;
    char out[SCRATCH_PATH], weights[SCRATCH_PATH];
    scratch_path(&scratch, "model", out);
    scratch_path(&scratch, "model/model.safetensors", weights);
    PROCESS_RUN(&p, &scratch, "export", config, "-o", out);
    expect_exit(&p, 0);
    process_release(&p);
    scratch_write_text(&scratch, "model/model.safetensors", "of another model");
    PROCESS_RUN(&p, &scratch, "export", config, "-o", out);
    expect_exit(&p, 2);
    expect_stderr(&p, "--force");
    expect_content(weights, "of another model");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", config, "-o", out, "--force");
    expect_exit(&p, 0);
    process_release(&p);
}

static void trained_weights_that_cannot_be_read_are_not_replaced_by_untrained_ones(void **state)
{
    (void)state;
    struct process p;
    char out[SCRATCH_PATH], weights[SCRATCH_PATH];
    scratch_path(&scratch, "model", out);
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=1", "-q");
    expect_exit(&p, 0);
    process_release(&p);
    assert_int_equal(unlink(scratch_path(&scratch, "out/checkpoint-1/model.safetensors", weights)),
                     0);
    const char *const *const commands[] = {
        (const char *const[]){"export", config, "-o", out, NULL},
        (const char *const[]){"generate", config, "-n", "2", NULL},
        (const char *const[]){"eval", config, "datasets.0.type=synthetic", "eval_max_batches=1",
                              NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        process_run(&p, &scratch, NULL, commands[i]);
        expect_exit(&p, 5);
        expect_stderr(&p, "none that is whole");
        process_release(&p);
    }
    assert_false(file_exists(out));
    PROCESS_RUN(&p, &scratch, "export", config, "-o", out, "--checkpoint", "none");
    expect_exit(&p, 0);
    process_release(&p);
}

static void pipes_where_files_are_due_are_named(void **state)
{
    (void)state;
    struct process p;
    char pipe[SCRATCH_PATH], out[SCRATCH_PATH], model[SCRATCH_PATH], data[SCRATCH_PATH + 32];
    assert_int_equal(mkfifo(scratch_path(&scratch, "pipe.bin", pipe), 0600), 0);
    scratch_path(&scratch, "x.bin", out);
    (void)snprintf(data, sizeof(data), "datasets.0.path=%s", pipe);
    PROCESS_RUN(&p, &scratch, "tokenize", config, pipe, "-o", out);
    expect_exit(&p, 1);
    expect_stderr(&p, "a pipe, where a regular file is needed");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, data, "max_steps=1");
    expect_exit(&p, 5);
    expect_stderr(&p, "a pipe, where a regular file is needed");
    process_release(&p);
    scratch_write_text(&scratch, "model/x", "");
    assert_int_equal(mkfifo(scratch_path(&scratch, "model/config.json", pipe), 0600), 0);
    PROCESS_RUN(&p, &scratch, "generate", scratch_path(&scratch, "model", model));
    expect_stderr(&p, "a pipe, where a regular file is needed");
    assert_true(p.exit_code > 0);
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tokenize_refuses_an_output_that_it_reads),
        TEST(no_command_writes_over_its_config),
        TEST(a_link_stays_what_it_is),
        TEST(a_device_stays_what_it_is),
        TEST(an_export_replaces_another_only_by_force),
        TEST(trained_weights_that_cannot_be_read_are_not_replaced_by_untrained_ones),
        TEST(pipes_where_files_are_due_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
