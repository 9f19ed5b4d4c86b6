/* One folder, one run: who a folder belongs to, and what becomes of another run's files in it. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/json.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 9000\n"
                      "save_steps: 10\nreport_to: none\nlogging_steps: 1000\n",
                      config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Trains without the fixture's permission to overwrite. */
#define TRAIN(p, ...) \
    process_run(p, &scratch, NULL, ARGS("train", config, "overwrite_output_dir=false", __VA_ARGS__))

static void expect_train(int exit_code, const char *said, const char *const *args)
{
    struct process p;
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, exit_code);
    expect_stderr(&p, said);
    process_release(&p);
}

/* The folder a checkpoint of `last` has, as the program itself finds it. */
static void expect_last(const char *name)
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "eval", config, "--checkpoint", "last", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_string_equal(json_text_at(j, "weights"), in_scratch(name));
    json_decref(j);
    process_release(&p);
}

/* The id of the run in a checkpoint's state, in a buffer of the caller's. */
static void read_run(const char *checkpoint, char out[64])
{
    json_t *root;
    char path[2 * SCRATCH_PATH];
    (void)snprintf(path, sizeof(path), "%s/state.json", in_scratch(checkpoint));
    assert_int_equal(json_read_file(&root, path, ERR_DATA), OK);
    (void)snprintf(out, 64, "%s", json_text_at(root, "run"));
    json_decref(root);
}

static void a_folder_of_another_run_is_refused_with_what_to_do(void **state)
{
    (void)state;
    struct process p;
    TRAIN(&p, "max_steps=20");
    expect_exit(&p, 0);
    process_release(&p);
    char *before, *after;
    size_t n_before, n_after;
    assert_int_equal(file_read(in_scratch("out/metrics.jsonl"), &before, &n_before), OK);
    TRAIN(&p, "max_steps=5", "--json");
    expect_exit(&p, 2);
    expect_stderr(&p, "checkpoint-20 of another run");
    expect_stderr(&p, "--resume");
    expect_stderr(&p, "overwrite_output_dir: true");
    process_release(&p);
    assert_int_equal(file_read(in_scratch("out/metrics.jsonl"), &after, &n_after), OK);
    assert_int_equal(n_before, n_after);
    mem_free(before);
    mem_free(after);
    assert_false(file_exists(in_scratch("out/checkpoint-5")));
    expect_last("out/checkpoint-20");
}

static void metrics_alone_make_a_folder_used_too(void **state)
{
    (void)state;
    struct process p;
    TRAIN(&p, "max_steps=2", "save_strategy=no");
    expect_exit(&p, 0);
    process_release(&p);
    TRAIN(&p, "max_steps=2");
    expect_exit(&p, 2);
    expect_stderr(&p, "metrics.jsonl of another run");
    process_release(&p);
    /* A job that is started again and again was killed before its first checkpoint. */
    TRAIN(&p, "max_steps=2", "resume_from_checkpoint=auto");
    expect_exit(&p, 0);
    process_release(&p);
}

static void overwriting_removes_what_snug_wrote_and_nothing_else(void **state)
{
    (void)state;
    struct process p;
    TRAIN(&p, "max_steps=20");
    expect_exit(&p, 0);
    process_release(&p);
    scratch_write_text(&scratch, "out/notes.txt", "mine");
    scratch_write_text(&scratch, "out/checkpoint-7/pytorch_model.bin", "another program's");
    expect_train(0, "2 checkpoints of an earlier run removed",
                 ARGS("train", config, "max_steps=5", "overwrite_output_dir=true"));
    assert_true(file_exists(in_scratch("out/notes.txt")));
    assert_true(file_exists(in_scratch("out/checkpoint-7/pytorch_model.bin")));
    assert_false(file_exists(in_scratch("out/checkpoint-10")));
    assert_false(file_exists(in_scratch("out/checkpoint-20")));
    expect_last("out/checkpoint-5");
}

static void a_run_that_cannot_start_overwrites_nothing(void **state)
{
    (void)state;
    struct process p;
    TRAIN(&p, "max_steps=10");
    expect_exit(&p, 0);
    process_release(&p);
    expect_train(5, "missing.txt", ARGS("train", config, "datasets=missing.txt"));
    assert_true(file_exists(in_scratch("out/checkpoint-10/state.json")));
    assert_true(file_exists(in_scratch("out/metrics.jsonl")));
}

static void a_second_run_in_a_folder_is_refused_while_the_first_is_at_work(void **state)
{
    (void)state;
    struct process p;
    char said[64];
    process_start(&p, &scratch, NULL, ARGS("train", config, "max_steps=1000000"));
    wait_for_file(&p, in_scratch("out/checkpoint-10"));
    (void)snprintf(said, sizeof(said), "process %ld is training in this folder", (long)p.pid);
    expect_train(2, said, ARGS("train", config, "max_steps=5"));
    expect_train(2, said, ARGS("train", config, "max_steps=5", "--resume"));
    assert_int_equal(kill(p.pid, SIGKILL), 0);
    process_wait(&p);
    process_release(&p);
    /* The kernel gives a dead run's lock back. */
    expect_train(0, "done: ", ARGS("train", config, "max_steps=5"));
}

static void a_run_keeps_its_id_when_it_goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct process p;
    char first[64], second[64], third[64];
    expect_train(0, "done: ", ARGS("train", config, "max_steps=20"));
    expect_train(0, "resumed", ARGS("train", config, "max_steps=30", "--resume"));
    read_run("out/checkpoint-20", first);
    read_run("out/checkpoint-30", second);
    assert_string_equal(first, second);
    /* Behind a later checkpoint: the new ones are the newer ones, though their steps are smaller.
     */
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=25",
                "resume_from_checkpoint=checkpoint-20");
    expect_exit(&p, 0);
    process_release(&p);
    read_run("out/checkpoint-25", third);
    assert_true(strcmp(third, first) > 0);
    expect_last("out/checkpoint-25");
    /* The lines of the two starts and of the third, in one file. */
    char *text;
    size_t n;
    assert_int_equal(file_read(in_scratch("out/metrics.jsonl"), &text, &n), OK);
    assert_non_null(strstr(text, first));
    assert_non_null(strstr(text, third));
    mem_free(text);
}

static void going_on_elsewhere_needs_a_folder_that_is_free(void **state)
{
    (void)state;
    char elsewhere[SCRATCH_PATH + 16], from[SCRATCH_PATH + 32];
    (void)snprintf(elsewhere, sizeof(elsewhere), "output_dir=%s", in_scratch("moved"));
    (void)snprintf(from, sizeof(from), "resume_from_checkpoint=%s",
                   in_scratch("out/checkpoint-10"));
    expect_train(0, "done: ", ARGS("train", config, "max_steps=10"));
    expect_train(0, "resumed", ARGS("train", config, "max_steps=20", elsewhere, from));
    char first[64], second[64];
    read_run("out/checkpoint-10", first);
    read_run("moved/checkpoint-20", second);
    assert_string_equal(first, second);
    expect_train(0, "done: ", ARGS("train", config, "max_steps=10", elsewhere));
    expect_train(
        2, "of another run",
        ARGS("train", config, "max_steps=20", elsewhere, from, "overwrite_output_dir=false"));
}

static void log_lines_stay_out_of_files_when_standard_error_is_closed(void **state)
{
    (void)state;
    struct process p;
    struct process_options no_stderr = {.closed = 2}, no_stdout = {.closed = 1};
    process_run(&p, &scratch, &no_stderr, ARGS("train", config, "max_steps=5", "logging_steps=1"));
    expect_exit(&p, 0);
    process_release(&p);
    char *text, *rest;
    size_t n, n_lines = 0;
    assert_int_equal(file_read(in_scratch("out/metrics.jsonl"), &text, &n), OK);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        if (!object)
            fail_msg("metrics.jsonl: not JSON: %s", line);
        json_decref(object);
        n_lines++;
    }
    assert_int_equal(n_lines, 2 + 5 + 1 + 1); /* config, plan, steps, save, end */
    mem_free(text);
    /* The first file that is kept open, and so the first to get a number that is free. */
    assert_int_equal(file_read(in_scratch("out/.snug-run"), &text, &n), OK);
    assert_null(strstr(text, "step "));
    mem_free(text);
    /* Output that was asked for and has nowhere to go is an error, as it was. */
    process_run(&p, &scratch, &no_stdout, ARGS("train", config, "max_steps=1", "--json"));
    expect_exit(&p, 1);
    expect_stderr(&p, "stdout could not be written");
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_folder_of_another_run_is_refused_with_what_to_do),
        TEST(metrics_alone_make_a_folder_used_too),
        TEST(overwriting_removes_what_snug_wrote_and_nothing_else),
        TEST(a_run_that_cannot_start_overwrites_nothing),
        TEST(a_second_run_in_a_folder_is_refused_while_the_first_is_at_work),
        TEST(a_run_keeps_its_id_when_it_goes_on_where_it_stopped),
        TEST(going_on_elsewhere_needs_a_folder_that_is_free),
        TEST(log_lines_stay_out_of_files_when_standard_error_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
