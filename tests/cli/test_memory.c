/* What a run takes of the machine, as the system sees it, against what was said before it ran. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/process.h"

#define MIB ((int64_t)1 << 20)

static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* Words, `n_bytes` of them: as a text file in lines, or as one line of JSONL. */
static void write_words(const char *name, int64_t n_bytes, int jsonl)
{
    static const char line[] =
        "It is a truth universally acknowledged, that 1 of 2 words is \\\"x\\\".";
    char path[SCRATCH_PATH];
    FILE *f = fopen(scratch_path(&scratch, name, path), "w");
    assert_non_null(f);
    if (jsonl)
        (void)fputs("{\"text\": \"", f);
    for (int64_t n = 0; n < n_bytes; n += (int64_t)sizeof(line))
        (void)fprintf(f, jsonl ? "%s " : "%s\n", line);
    if (jsonl)
        (void)fputs("\"}\n", f);
    assert_int_equal(fclose(f), 0);
}

static void make_config(const char *data, char out[SCRATCH_PATH])
{
    char more[SCRATCH_PATH + 128], path[SCRATCH_PATH];
    (void)snprintf(more, sizeof(more), "max_steps: 4\ndatasets:\n  - path: %s\n",
                   scratch_path(&scratch, data, path));
    write_tiny_config(&scratch, "memory.yaml", more, out);
}

/* A sanitizer takes memory of its own, which is in nobody's plan. */
static void skip_under_a_sanitizer(void)
{
    if (SNUG_ASAN)
        skip();
}

/* The whole process kept to what was predicted before data was read, and that to the budgets. All
 * code of the program and of the C library is in the prediction; some of it never runs. */
static void expect_promises_kept(const json_t *j, int64_t host_budget)
{
    int64_t predicted = json_int_at(j, "predicted.device_bytes");
    int64_t measured = json_int_at(j, "measured.device_bytes");
    int64_t needs = json_int_at(j, "budget.device_needs") + json_int_at(j, "budget.host_needs");
    const int64_t idle_code = 4 * MIB;
    if (measured > predicted + MIB || predicted > needs + MIB ||
        (double)measured < 0.98 * (double)predicted - (double)idle_code)
        fail_msg("measured %lld, predicted %lld, planned %lld", (long long)measured,
                 (long long)predicted, (long long)needs);
    assert_true(json_int_at(j, "budget.host_needs") <= host_budget);
}

static void train_on(const char *data)
{
    char config[SCRATCH_PATH];
    struct process p;
    make_config(data, config);
    PROCESS_RUN(&p, &scratch, "train", config, "host_memory=64MiB", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    expect_promises_kept(j, 64 * MIB);
    json_decref(j);
    process_release(&p);
}

static void text_larger_than_the_budget_is_trained_on_inside_of_it(void **state)
{
    (void)state;
    skip_under_a_sanitizer();
    write_words("words.txt", 80 * MIB, 0);
    train_on("words.txt");
}

static void a_line_larger_than_the_budget_is_trained_on_inside_of_it(void **state)
{
    (void)state;
    skip_under_a_sanitizer();
    write_words("words.jsonl", 80 * MIB, 1);
    train_on("words.jsonl");
}

static void a_tiny_run_takes_what_was_predicted(void **state)
{
    (void)state;
    struct process p;
    char config[SCRATCH_PATH];
    skip_under_a_sanitizer();
    write_words("few.txt", MIB, 0);
    make_config("few.txt", config);
    for (int time = 0; time < 2; time++) { /* kernels are timed the first time */
        PROCESS_RUN(&p, &scratch, "train", config, "--json");
        expect_exit(&p, 0);
        json_t *j = expect_json(&p);
        expect_promises_kept(j, INT64_MAX);
        json_decref(j);
        process_release(&p);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void a_run_that_the_machine_cannot_hold_is_refused(void **state)
{
    (void)state;
    struct process p;
    char config[SCRATCH_PATH];
    write_tiny_config(&scratch, "large.yaml", "", config);
    PROCESS_RUN(&p, &scratch, "plan", config, "model.hidden_size=65536",
                "model.intermediate_size=65536", "model.num_attention_heads=512", "--json");
    expect_exit(&p, 3);
    expect_stderr(&p, "are free");
    expect_stderr(&p, "device_memory: ");
    json_t *j = expect_json(&p);
    assert_false(json_bool_at(j, "fits"));
    json_decref(j);
    process_release(&p);
}

static void a_host_budget_below_the_process_is_refused(void **state)
{
    (void)state;
    struct process p;
    char config[SCRATCH_PATH];
    write_tiny_config(&scratch, "small.yaml", "", config);
    PROCESS_RUN(&p, &scratch, "train", config, "host_memory=1MiB");
    expect_exit(&p, 3);
    expect_stderr(&p, "host memory needs");
    expect_stderr(&p, "raise host_memory");
    process_release(&p);
}

/* `auto` plans inside what the process may take, a budget above it is refused before a step. */
static void a_limit_of_the_process_is_refused_with_its_name(void **state)
{
    (void)state;
    static const char *const budgets[] = {"device_memory=auto", "device_memory=64GiB"};
    char config[SCRATCH_PATH];
    skip_under_a_sanitizer();
    write_tiny_config(&scratch, "limited.yaml", "", config);
    for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
        struct process p;
        const struct process_options o = {.max_address_bytes = 1024 * MIB};
        const char *const args[] = {
            "train",    config, "model.hidden_size=4096", "model.intermediate_size=16384",
            budgets[i], NULL};
        process_run(&p, &scratch, &o, args);
        expect_exit(&p, 3);
        expect_stderr(&p, "of ulimit -v's 1.00 GiB are free");
        process_release(&p);
    }
}

static void steps_without_end_take_no_memory(void **state)
{
    (void)state;
    struct process p;
    char config[SCRATCH_PATH];
    write_tiny_config(&scratch, "endless.yaml", "", config);
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=1000000000", "max_time=1s",
                "save_strategy=no", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_int_equal(json_array_size(json_object_get(j, "losses")), json_int_at(j, "steps"));
    assert_true(json_int_at(j, "predicted.beside_bytes") < 256 * MIB);
    json_decref(j);
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_larger_than_the_budget_is_trained_on_inside_of_it),
        cmocka_unit_test(a_line_larger_than_the_budget_is_trained_on_inside_of_it),
        cmocka_unit_test(a_tiny_run_takes_what_was_predicted),
        cmocka_unit_test(a_run_that_the_machine_cannot_hold_is_refused),
        cmocka_unit_test(a_host_budget_below_the_process_is_refused),
        cmocka_unit_test(a_limit_of_the_process_is_refused_with_its_name),
        cmocka_unit_test(steps_without_end_take_no_memory),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
