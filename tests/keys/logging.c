/* Keys of what is shown and written while training. What is shown is the program's: it is run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "keys/keys.h"
#include "support/process.h"
#include "support/trial.h"

/* ---- folders --------------------------------------------------------------------------------- */

static bool in_scratch(const char *name)
{
    char path[SCRATCH_PATH];
    return file_exists(scratch_path(trials_scratch(), name, path));
}

void key_output_dir(void)
{
    struct trial t;
    TRAIN(&t, trial_path("output_dir", "mine"), "save_strategy=steps");
    assert_true(in_scratch("mine/metrics.jsonl") && in_scratch("mine/config.yaml"));
    assert_true(in_scratch("mine/checkpoint-3/model.safetensors"));
}

/* Lines of metrics.jsonl of this kind; the first one goes to *first where it is asked for. */
static int count_lines(const struct trial *t, const char *kind, json_t **first)
{
    char path[2 * SCRATCH_PATH], *text, *rest;
    size_t n_bytes;
    int n = 0;
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", t->folder);
    assert_int_equal(file_read(path, &text, &n_bytes), 0);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        if (strcmp(json_text_at(o, "kind"), kind) == 0 && n++ == 0 && first)
            *first = json_incref(o);
        json_decref(o);
    }
    mem_free(text);
    return n;
}

void key_run_name(void)
{
    struct trial t;
    json_t *config = NULL;
    TRAIN(&t, "run_name=the third attempt");
    assert_int_equal(count_lines(&t, "config", &config), 1);
    assert_string_equal(json_text_at(config, "config.run_name"), "the third attempt");
    json_decref(config);
}

void key_logging_dir(void)
{
    struct trial t;
    TRAIN(&t, "report_to=tensorboard");
    assert_true(trial_has_file(&t, "runs"));
    TRAIN(&t, "report_to=tensorboard", trial_path("logging_dir", "curves"));
    assert_false(trial_has_file(&t, "runs"));
    assert_true(in_scratch("curves"));
}

void key_report_to(void)
{
    struct trial t;
    TRAIN(&t, "report_to=none");
    assert_false(trial_has_file(&t, "runs"));
    assert_int_equal(count_lines(&t, "step", NULL), 3);
    TRAIN(&t, "report_to=tensorboard");
    assert_true(trial_has_file(&t, "runs"));
    assert_int_equal(count_lines(&t, "step", NULL), 3);
}

/* ---- the terminal ---------------------------------------------------------------------------- */

/* Trains the program's tiny model for eleven steps, two epochs of five and one more; what it
 * said goes to p. */
static void watch(struct process *p, const char *one, const char *other)
{
    char config[SCRATCH_PATH], cache[SCRATCH_PATH];
    write_tiny_config(trials_scratch(), "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 330\nsave_strategy: no\n"
                      "report_to: none\n",
                      config);
    struct process_options o = {.variable = "XDG_CACHE_HOME",
                                .setting = scratch_path(trials_scratch(), "cache", cache)};
    process_run(p, trials_scratch(), &o,
                (const char *const[]){"train", config, "max_steps=11", one, other, NULL});
    expect_exit(p, 0);
}

/* Lines of stderr that begin so. */
static int n_shown(const char *start, const char *one, const char *other)
{
    struct process p;
    char *rest;
    int n = 0;
    watch(&p, one, other);
    for (char *line = strtok_r(p.err, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        n += strncmp(line, start, strlen(start)) == 0;
    process_release(&p);
    return n;
}

#define N_STEP_LINES(one, other) n_shown("step ", one, other)

void key_logging_strategy(void)
{
    assert_int_equal(N_STEP_LINES("logging_strategy=steps", "logging_steps=1"), 11);
    assert_int_equal(N_STEP_LINES("logging_strategy=epoch", "logging_steps=1"), 3);
    assert_int_equal(N_STEP_LINES("logging_strategy=no", "logging_steps=1"), 0);
}

void key_logging_steps(void)
{
    assert_int_equal(N_STEP_LINES("logging_steps=1", NULL), 11);
    assert_int_equal(N_STEP_LINES("logging_steps=4", NULL), 4); /* 1, 4, 8, 11 */
}

void key_logging_first_step(void)
{
    assert_int_equal(N_STEP_LINES("logging_steps=4", "logging_first_step=false"), 3);
    assert_int_equal(N_STEP_LINES("logging_steps=4", "logging_first_step=true"), 4);
}

void key_log_format(void)
{
    assert_int_equal(N_STEP_LINES("log_format=text", NULL), 11);
    assert_int_equal(N_STEP_LINES("log_format=json", NULL), 0);
    assert_int_equal(n_shown("{\"t\"", "log_format=json", NULL), 11);
    assert_int_equal(N_STEP_LINES("log_format=quiet", NULL), 0);
}

void key_log_level(void)
{
    assert_int_equal(N_STEP_LINES("log_level=info", NULL), 11);
    assert_int_equal(N_STEP_LINES("log_level=warning", NULL), 0);
    assert_int_equal(n_shown("", "log_level=error", NULL), 0);
}
