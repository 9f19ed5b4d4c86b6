/* Runs that end early: asked to stop, killed, out of disk; and going on from there, bit for bit. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    /* A constant learning rate and data of a fixed size: a run's first steps do not depend on how
     * many there will be. */
    write_tiny_config(&scratch, "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 9000\n"
                      "save_steps: 10\nsave_total_limit: 2\nreport_to: none\nlogging_steps: 1000\n"
                      "gradient_accumulation_steps: 2\n",
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

/* The losses of an uninterrupted run of n steps. */
static json_t *whole_run(int64_t n_steps)
{
    struct process p;
    char steps[64], out[SCRATCH_PATH + 16];
    (void)snprintf(steps, sizeof(steps), "max_steps=%lld", (long long)n_steps);
    (void)snprintf(out, sizeof(out), "output_dir=%s", in_scratch("whole"));
    PROCESS_RUN(&p, &scratch, "train", config, steps, out, "save_strategy=no", "--json", "-q");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    json_t *losses = json_incref(json_object_get(j, "losses"));
    assert_int_equal(json_array_size(losses), n_steps);
    json_decref(j);
    process_release(&p);
    return losses;
}

/* Resumes to n_steps and compares with the whole run from where it resumed. */
static void expect_same_with(const char *setting, int64_t n_steps, int64_t at_least)
{
    struct process p;
    char steps[64];
    (void)snprintf(steps, sizeof(steps), "max_steps=%lld", (long long)n_steps);
    PROCESS_RUN(&p, &scratch, "train", config, steps, setting, "--resume", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "resumed from");
    json_t *j = expect_json(&p), *whole = whole_run(n_steps);
    const json_t *losses = json_object_get(j, "losses");
    size_t n = json_array_size(losses), first = json_array_size(whole) - n;
    assert_true((int64_t)first >= at_least);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        double here = json_real_value(json_array_get(losses, i));
        double there = json_real_value(json_array_get(whole, first + i));
        if (here != there)
            fail_msg("step %zu: %.17g after resuming, %.17g without", first + i + 1, here, there);
    }
    assert_int_equal(json_int_at(j, "last_step"), n_steps);
    json_decref(whole);
    json_decref(j);
    process_release(&p);
}

static void expect_same_from_here(int64_t n_steps, int64_t at_least)
{
    expect_same_with("logging_steps=1000", n_steps, at_least);
}

static void stop_with(int number, int exit_code, const char *status)
{
    struct process p;
    process_start(&p, &scratch, NULL, ARGS("train", config, "max_steps=1000000", "--json"));
    wait_for_file(&p, in_scratch("out/checkpoint-20"));
    assert_int_equal(kill(p.pid, number), 0);
    process_wait(&p);
    expect_exit(&p, exit_code);
    json_t *j = expect_json(&p);
    assert_string_equal(json_text_at(j, "error.status"), status);
    assert_int_equal(json_int_at(j, "error.exit_code"), exit_code);
    int64_t last = json_int_at(j, "last_step");
    assert_true(last >= 20);
    assert_int_equal(json_array_size(json_object_get(j, "losses")), last);
    char name[64];
    (void)snprintf(name, sizeof(name), "out/checkpoint-%lld", (long long)last);
    assert_string_equal(json_text_at(j, "last_checkpoint"), in_scratch(name));
    json_decref(j);
    process_release(&p);
    expect_same_from_here(last + 5, last);
}

/* Killed at once after a request, and while it is carried out. */
static void killed_while_its_budget_changes_it_goes_on_exactly(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct process p;
        process_start(&p, &scratch, NULL, ARGS("train", config, "max_steps=1000000"));
        wait_for_file(&p, in_scratch("out/checkpoint-20"));
        scratch_write_text(&scratch, "out/BUDGET", "id\ndevice_memory=400KiB\n");
        (void)usleep((useconds_t)(i * 8000));
        assert_int_equal(kill(p.pid, SIGKILL), 0);
        process_wait(&p);
        assert_int_equal(p.signal, SIGKILL);
        process_release(&p);
        (void)unlink(in_scratch("out/BUDGET"));
        expect_same_from_here(150, 20);
    }
}

static void ctrl_c_saves_and_the_run_goes_on_exactly(void **state)
{
    (void)state;
    stop_with(SIGINT, 130, "ERR_INTERRUPTED");
}

static void sigterm_saves_and_ends_with_143(void **state)
{
    (void)state;
    stop_with(SIGTERM, 143, "ERR_TERMINATED");
}

static void a_closed_terminal_saves_and_ends_with_129(void **state)
{
    (void)state;
    stop_with(SIGHUP, 129, "ERR_HANGUP");
}

static void under_nohup_a_closed_terminal_is_not_noticed(void **state)
{
    (void)state;
    struct process p;
    struct process_options o = {.ignores_hangup = true};
    process_start(&p, &scratch, &o, ARGS("train", config, "max_steps=1000000"));
    wait_for_file(&p, in_scratch("out/checkpoint-10"));
    assert_int_equal(kill(p.pid, SIGHUP), 0);
    wait_for_file(&p, in_scratch("out/checkpoint-40"));
    assert_int_equal(kill(p.pid, SIGTERM), 0);
    process_wait(&p);
    expect_exit(&p, 143);
    process_release(&p);
}

static void a_killed_run_goes_on_exactly(void **state)
{
    (void)state;
    struct process p;
    process_start(&p, &scratch, NULL, ARGS("train", config, "max_steps=1000000", "--json"));
    wait_for_file(&p, in_scratch("out/checkpoint-30"));
    assert_int_equal(kill(p.pid, SIGKILL), 0);
    process_wait(&p);
    assert_int_equal(p.signal, SIGKILL);
    process_release(&p);
    expect_same_from_here(120, 20);
}

/* "device_memory=..." of three fifths of what the run takes when it may: most of what outlives a
 * step is then on the host. */
static const char *small_budget(void)
{
    static char text[64];
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    (void)snprintf(text, sizeof(text), "device_memory=%lld",
                   (long long)json_int_at(j, "predicted.arena_bytes") * 3 / 5);
    json_decref(j);
    process_release(&p);
    return text;
}

static void killed_with_its_states_on_the_host_it_goes_on_exactly(void **state)
{
    (void)state;
    struct process p;
    const char *budget = small_budget();
    process_start(&p, &scratch, NULL, ARGS("train", config, "max_steps=1000000", budget));
    wait_for_file(&p, in_scratch("out/checkpoint-30"));
    assert_int_equal(kill(p.pid, SIGKILL), 0);
    process_wait(&p);
    assert_int_equal(p.signal, SIGKILL);
    expect_stderr(&p, "what has left the device");
    expect_stderr(&p, "- optimizer");
    process_release(&p);
    expect_same_with(budget, 100, 20);
    expect_same_from_here(120, 100); /* and without a budget from there */
}

static void touching_stop_saves_and_ends(void **state)
{
    (void)state;
    struct process p;
    process_start(&p, &scratch, NULL, ARGS("train", config, "max_steps=1000000", "--json"));
    wait_for_file(&p, in_scratch("out/checkpoint-10"));
    scratch_write_text(&scratch, "out/STOP", "");
    process_wait(&p);
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_true(json_int_at(j, "steps") < 1000000);
    (void)json_text_at(j, "last_checkpoint");
    assert_false(file_exists(in_scratch("out/STOP")));
    json_decref(j);
    process_release(&p);
}

static void a_requested_stop_saves_whatever_save_strategy_says(void **state)
{
    (void)state;
    struct process p;
    process_start(&p, &scratch, NULL,
                  ARGS("train", config, "max_steps=1000000", "save_strategy=no", "--json"));
    wait_for_file(&p, in_scratch("out/metrics.jsonl"));
    scratch_write_text(&scratch, "out/STOP", "");
    process_wait(&p);
    expect_exit(&p, 0);
    expect_stderr(&p, "save_strategy: no: nothing is saved unless");
    json_t *j = expect_json(&p);
    assert_true(file_exists(json_text_at(j, "last_checkpoint")));
    json_decref(j);
    process_release(&p);
    /* A run that ends by itself saves nothing, and says so. */
    process_run(&p, &scratch, NULL, ARGS("train", config, "max_steps=2", "save_strategy=no"));
    expect_exit(&p, 0);
    expect_stderr(&p, "saved     nothing");
    process_release(&p);
}

static void folders_called_save_and_stop_are_nobodys_request(void **state)
{
    (void)state;
    struct process p;
    scratch_write_text(&scratch, "out/SAVE/thesis.txt", "mine");
    scratch_write_text(&scratch, "out/STOP/data.txt", "mine");
    process_run(&p, &scratch, NULL, ARGS("train", config, "max_steps=15", "--json"));
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "steps"), 15);
    json_decref(j);
    process_release(&p);
    assert_true(file_exists(in_scratch("out/SAVE/thesis.txt")));
    assert_true(file_exists(in_scratch("out/STOP/data.txt")));
    assert_false(file_exists(in_scratch("out/checkpoint-1")));
}

/* After a failed save: exit code 1, the earlier checkpoint whole, nothing half-written. */
static void expect_failed_save(const struct process *p, const char *reason)
{
    expect_exit(p, 1);
    expect_stderr(p, "error: ");
    expect_stderr(p, reason);
    json_t *j = expect_json(p);
    assert_string_equal(json_text_at(j, "error.status"), "ERR_IO");
    if (!strstr(json_text_at(j, "error.message"), reason))
        fail_msg("'%s' is not in: %s", reason, json_text_at(j, "error.message"));
    json_decref(j);
}

static void a_save_that_hits_the_file_size_limit_is_reported(void **state)
{
    (void)state;
    struct process p;
    struct process_options o = {.max_file_bytes = 64 << 10};
    process_run(&p, &scratch, NULL, ARGS("train", config, "max_steps=10", "-q"));
    expect_exit(&p, 0);
    process_release(&p);
    process_run(&p, &scratch, &o, ARGS("train", config, "max_steps=20", "--resume", "--json"));
    expect_failed_save(&p, "File too large");
    process_release(&p);
    assert_false(file_exists(in_scratch("out/checkpoint-20")));
    expect_same_from_here(20, 10);
}

static void a_full_disk_is_reported_and_earlier_checkpoints_stay(void **state)
{
    (void)state;
    struct process p;
    char out[SCRATCH_PATH + 16];
    assert_int_equal(file_make_folders(in_scratch("small")), OK);
    if (mount("tmpfs", in_scratch("small"), "tmpfs", 0, "size=600k") != 0)
        skip(); /* needs the right to mount */
    (void)snprintf(out, sizeof(out), "output_dir=%s/run", in_scratch("small"));
    process_run(&p, &scratch, NULL,
                ARGS("train", config, out, "max_steps=40", "save_total_limit=0", "--json"));
    int checkpoint = file_exists(in_scratch("small/run/checkpoint-10/state.json"));
    int half = file_exists(in_scratch("small/run/checkpoint-20"));
    (void)umount(in_scratch("small"));
    expect_failed_save(&p, "the disk is full");
    assert_true(checkpoint);
    assert_false(half);
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(killed_while_its_budget_changes_it_goes_on_exactly),
        TEST(ctrl_c_saves_and_the_run_goes_on_exactly),
        TEST(sigterm_saves_and_ends_with_143),
        TEST(a_closed_terminal_saves_and_ends_with_129),
        TEST(under_nohup_a_closed_terminal_is_not_noticed),
        TEST(a_killed_run_goes_on_exactly),
        TEST(killed_with_its_states_on_the_host_it_goes_on_exactly),
        TEST(touching_stop_saves_and_ends),
        TEST(a_requested_stop_saves_whatever_save_strategy_says),
        TEST(folders_called_save_and_stop_are_nobodys_request),
        TEST(a_save_that_hits_the_file_size_limit_is_reported),
        TEST(a_full_disk_is_reported_and_earlier_checkpoints_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
