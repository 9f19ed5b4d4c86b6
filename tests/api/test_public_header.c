/* The library as its users see it: only snug.h. */
#include <snug.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/scratch.h"

static void exit_codes_are_those_of_the_command_line(void **state)
{
    (void)state;
    static const struct {
        enum snug_status status;
        int code;
        const char *name;
    } due[] = {
        {SNUG_OK, 0, "OK"},
        {SNUG_ERR_FAILED, 1, "ERR_FAILED"},
        {SNUG_ERR_NUMERIC, 1, "ERR_NUMERIC"},
        {SNUG_ERR_USAGE, 2, "ERR_USAGE"},
        {SNUG_ERR_CONFIG, 2, "ERR_CONFIG"},
        {SNUG_ERR_UNSUPPORTED, 2, "ERR_UNSUPPORTED"},
        {SNUG_ERR_FIT, 3, "ERR_FIT"},
        {SNUG_ERR_DEVICE_MEMORY, 4, "ERR_DEVICE_MEMORY"},
        {SNUG_ERR_DATA, 5, "ERR_DATA"},
        {SNUG_ERR_CHECKPOINT, 5, "ERR_CHECKPOINT"},
        {SNUG_ERR_INTERRUPTED, 130, "ERR_INTERRUPTED"},
        {SNUG_ERR_TERMINATED, 143, "ERR_TERMINATED"},
        {SNUG_ERR_HANGUP, 129, "ERR_HANGUP"},
    };
    for (size_t i = 0; i < sizeof(due) / sizeof(due[0]); i++) {
        assert_int_equal(snug_exit_code(due[i].status), due[i].code);
        assert_string_equal(snug_status_name(due[i].status), due[i].name);
    }
}

static struct snug_config *tiny_config(const struct scratch *s)
{
    char out[SCRATCH_PATH];
    (void)snprintf(out, sizeof(out), "output_dir=%s", s->folder);
    const char *overrides[] = {"model_name_or_path=tests/golden/gpt2",
                               "datasets=[{type: synthetic, n_tokens: 5000}]",
                               "max_seq_length=16",
                               "per_device_train_batch_size=2",
                               "max_steps=6",
                               "save_steps=3",
                               "report_to=none",
                               "num_threads=1",
                               out};
    struct snug_config *config;
    if (snug_config_load(&config, NULL, overrides, sizeof(overrides) / sizeof(overrides[0])) !=
        SNUG_OK)
        fail_msg("%s", snug_error_message());
    return config;
}

struct seen {
    int n_steps, n_saves;
    double last_loss;
    int64_t stop_after;
    volatile sig_atomic_t stop;
};

static enum snug_status on_step(void *user, const struct snug_step *step)
{
    struct seen *seen = user;
    seen->n_steps++;
    seen->last_loss = step->loss;
    assert_int_equal(step->arena_bytes, step->arena_predicted);
    if (step->step == seen->stop_after)
        seen->stop = SIGINT;
    return SNUG_OK;
}

static enum snug_status on_save(void *user, int64_t step, const char *path, double seconds)
{
    struct seen *seen = user;
    assert_true(step > 0 && path && seconds >= 0);
    seen->n_saves++;
    return SNUG_OK;
}

static void observers_see_every_step_and_can_stop_the_run(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    struct snug_config *config = tiny_config(&s);
    struct snug_run *run;
    struct seen seen = {.stop_after = 4};
    struct snug_observer observer = {.user = &seen, .on_step = on_step, .on_save = on_save};
    struct snug_train_options o = {.observer = &observer, .stop = &seen.stop};
    struct snug_train_result r;
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_TRAIN), SNUG_OK);
    assert_int_equal(snug_run_require_fit(run), SNUG_OK);
    assert_int_equal(snug_run_train(run, &o), SNUG_ERR_INTERRUPTED);
    snug_run_result(run, &r);
    assert_int_equal(seen.n_steps, 4);
    assert_int_equal(seen.n_saves, 2); /* step 3, and where it stopped */
    assert_int_equal(r.n_steps, 4);
    assert_true(r.losses[3] == seen.last_loss);
    assert_int_equal(snug_checkpoint_verify(r.last_checkpoint), SNUG_OK);
    assert_int_equal(snug_run_train(run, &o), SNUG_ERR_USAGE); /* once per run */
    snug_run_close(run);
    snug_config_free(config);
    scratch_release(&s);
}

static enum snug_status fail_at_once(void *user, const struct snug_step *step)
{
    (void)user;
    (void)step;
    return SNUG_ERR_FAILED;
}

static void an_observer_that_fails_ends_the_run(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    struct snug_config *config = tiny_config(&s);
    struct snug_run *run;
    struct snug_observer observer = {.on_step = fail_at_once};
    struct snug_train_options o = {.observer = &observer};
    struct snug_train_result r;
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_TRAIN), SNUG_OK);
    assert_int_equal(snug_run_train(run, &o), SNUG_ERR_FAILED);
    snug_run_result(run, &r);
    assert_int_equal(r.n_steps, 1);
    snug_run_close(run);
    snug_config_free(config);
    scratch_release(&s);
}

static void the_forecast_adds_up(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    struct snug_config *config = tiny_config(&s);
    struct snug_run *run;
    struct snug_forecast f;
    char *text;
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_TRAIN | SNUG_EVALUATE), SNUG_OK);
    snug_run_forecast(run, &f);
    int64_t sum = f.fragmentation;
    for (int c = 0; c < SNUG_MEMORY_COUNT; c++)
        sum += f.breakdown[c];
    assert_int_equal(sum, f.arena_bytes);
    assert_true(f.device_bytes >= f.arena_bytes + f.host_bytes + f.context_bytes);
    assert_int_equal(f.device_needs, f.arena_bytes);
    assert_true(f.host_needs >= f.host_bytes + f.beside_bytes);
    assert_true(f.arena_bytes >= f.arena_lower_bound);
    assert_string_equal(f.model, "gpt2");
    assert_int_equal(f.tokens_per_step, 2 * 16);
    assert_true(f.fits && f.step_s > 0);
    assert_true(!f.device_budget_given && f.device_budget > f.device_needs); /* what is free */
    assert_int_equal(snug_run_timeline(run, 60, 8, false, &text), SNUG_OK);
    assert_non_null(strchr(text, '\n'));
    snug_free(text);
    assert_int_equal(snug_run_decisions(run, &text), SNUG_OK);
    assert_non_null(strstr(text, "train_batch_size=2"));
    snug_free(text);
    snug_run_close(run);
    snug_config_free(config);
    scratch_release(&s);
}

static void errors_say_what_was_wrong(void **state)
{
    (void)state;
    struct snug_config *config;
    const char *overrides[] = {"max_stepps=3"};
    char *text;
    assert_int_equal(snug_config_load(&config, NULL, overrides, 1), SNUG_ERR_CONFIG);
    assert_null(config);
    assert_non_null(strstr(snug_error_message(), "max_steps"));
    assert_int_equal(snug_error_json(SNUG_ERR_CONFIG, &text), SNUG_OK);
    assert_non_null(strstr(text, "\"exit_code\": 2"));
    snug_free(text);
}

/* Bytes that a run, from its config to its last step, writes to stderr. */
static int64_t bytes_said(bool terminal)
{
    struct scratch s;
    struct snug_run *run;
    struct stat st;
    scratch_init(&s);
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_non_null(file);
    (void)fflush(stderr);
    assert_true(before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    struct snug_config *config = tiny_config(&s);
    enum snug_status status = snug_run_open(&run, config, NULL, SNUG_TRAIN);
    if (status == SNUG_OK)
        status = snug_run_train(run, &(struct snug_train_options){.terminal = terminal});
    (void)fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    (void)close(before);
    if (status != SNUG_OK)
        fail_msg("%s", snug_error_message());
    snug_run_close(run);
    snug_config_free(config);
    assert_int_equal(fstat(fileno(file), &st), 0);
    (void)fclose(file);
    scratch_release(&s);
    return (int64_t)st.st_size;
}

static void nothing_is_printed_unless_asked_for(void **state)
{
    (void)state;
    assert_int_equal(bytes_said(false), 0);
    assert_true(bytes_said(true) > 0);
    assert_int_equal(bytes_said(false), 0);
}

static void a_request_without_a_prompt_begins_at_the_beginning(void **state)
{
    (void)state;
    struct snug_config *config;
    struct snug_generator *g;
    struct snug_generation out;
    const struct snug_generate_request request = {.max_new_tokens = 3, .top_p = 1};
    static const char model[] = "model={model_type: gpt2, vocab_size: 257, n_embd: 16, n_layer: 1, "
                                "n_head: 2, n_positions: 64}";
    const char *const overrides[] = {model, "tokenizer=bytes", "max_seq_length=16",
                                     "num_threads=1"};
    char *text;
    assert_int_equal(
        snug_config_load(&config, NULL, overrides, sizeof(overrides) / sizeof(overrides[0])),
        SNUG_OK);
    assert_int_equal(snug_generator_open(&g, config, NULL, "none", &request), SNUG_OK);
    assert_int_equal(snug_generate(g, NULL, NULL, NULL, &out), SNUG_OK);
    assert_int_equal(snug_generation_json(&request, &out, &text), SNUG_OK);
    assert_non_null(strstr(text, "\"prompt\": \"\""));
    snug_free(text);
    snug_generator_close(g);
    snug_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_are_those_of_the_command_line),
        cmocka_unit_test(observers_see_every_step_and_can_stop_the_run),
        cmocka_unit_test(an_observer_that_fails_ends_the_run),
        cmocka_unit_test(the_forecast_adds_up),
        cmocka_unit_test(errors_say_what_was_wrong),
        cmocka_unit_test(nothing_is_printed_unless_asked_for),
        cmocka_unit_test(a_request_without_a_prompt_begins_at_the_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
