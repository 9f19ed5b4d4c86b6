/* What watches a run: the log line, metrics.jsonl, TensorBoard. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "report/observe.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "task/language.h"

static struct step_record a_step(int64_t step)
{
    return (struct step_record){
        .step = step,
        .n_steps = 1500,
        .epoch = 0.08,
        .loss = 1.23449,
        .grad_norm = 0.871,
        .lr = 1.9e-4,
        .unit = &task_language.unit,
        .n_units = 8192,
        .n_units_total = 983040,
        .seconds = 0.412,
        .units_per_s = 4812.4,
        .mfu = 0.41,
        .arena_bytes = INT64_C(2480343613),
        .arena_predicted = INT64_C(2480343613),
        .device_bytes = INT64_C(2630667468),
        .device_predicted = INT64_C(2619930050),
        .host_bytes = 4096,
        .eta_s = 4320,
    };
}

static void the_log_line_is_as_documented(void **state)
{
    (void)state;
    struct step_record r = a_step(120);
    struct str text = {0};
    observe_step_text(&text, &r, 200);
    assert_string_equal(str_text(&text),
                        "step 120/1500  8.0%  loss 1.2345  gnorm 0.87  lr 1.9e-04  4,812 tok/s  "
                        "MFU 41%  mem 2.31G  proc 2.45G  412 ms  ETA 1h12m");
    str_release(&text);
}

static void a_slow_rate_is_no_nought(void **state)
{
    (void)state;
    struct step_record r = a_step(120);
    struct str text = {0};
    r.units_per_s = 0.478;
    observe_step_text(&text, &r, 200);
    assert_non_null(strstr(str_text(&text), "  0.48 tok/s  "));
    str_clear(&text);
    observe_bar_text(&text, &r, 200);
    assert_non_null(strstr(str_text(&text), "  0.48 tok/s  "));
    str_release(&text);
}

/* The lines keep to the width, and a narrower one has fewer fields in the same order. */
static void lines_keep_to_the_width_and_give_up_the_least_important_fields(void **state)
{
    (void)state;
    struct step_record r = a_step(120);
    struct str text = {0};
    for (int n_columns = 24; n_columns <= 160; n_columns++) {
        str_clear(&text);
        observe_step_text(&text, &r, n_columns);
        assert_in_range(text.n, 1, n_columns);
        str_clear(&text);
        observe_bar_text(&text, &r, n_columns);
        assert_in_range(text.n, 1, n_columns);
    }
    static const struct {
        int n_columns;
        const char *step, *bar;
    } widths[] = {
        {110,
         "step 120/1500  loss 1.2345  gnorm 0.87  lr 1.9e-04  4,812 tok/s  MFU 41%  mem 2.31G  "
         "proc 2.45G  ETA 1h12m",
         "[==>                         ] 120/1500  8.0%  loss 1.2345  4,812 tok/s  ETA 1h12m"},
        {79, "step 120/1500  loss 1.2345  gnorm 0.87  lr 1.9e-04  4,812 tok/s  ETA 1h12m",
         "[==>                      ] 120/1500  8.0%  loss 1.2345  4,812 tok/s  ETA 1h12m"},
        {59, "step 120/1500  loss 1.2345  4,812 tok/s  ETA 1h12m",
         "120/1500  8.0%  loss 1.2345  4,812 tok/s  ETA 1h12m"},
        {39, "step 120/1500  loss 1.2345  4,812 tok/s", "120/1500  loss 1.2345  ETA 1h12m"},
        {8, "step 120", "120/1500"},
    };
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        str_clear(&text);
        observe_step_text(&text, &r, widths[i].n_columns);
        assert_string_equal(str_text(&text), widths[i].step);
        str_clear(&text);
        observe_bar_text(&text, &r, widths[i].n_columns);
        assert_string_equal(str_text(&text), widths[i].bar);
    }
    str_release(&text);
}

static void a_long_run_still_has_lines_of_at_most_110_characters(void **state)
{
    (void)state;
    struct step_record r = a_step(123456789);
    struct str text = {0};
    r.n_steps = 1234567890;
    r.units_per_s = 12345678;
    r.loss_scale = 65536;
    r.skipped = true;
    r.arena_bytes -= 100000000; /* not what was predicted: both are shown */
    observe_step_text(&text, &r, 110);
    assert_in_range(text.n, 60, 110);
    assert_non_null(strstr(str_text(&text), "scale 65536 (skipped)"));
    str_clear(&text);
    observe_step_text(&text, &r, 300);
    assert_non_null(strstr(str_text(&text), "mem 2.22/2.31G"));
    str_release(&text);
}

static void a_step_without_labels_says_so_where_room_is_short_too(void **state)
{
    (void)state;
    struct step_record r = a_step(120);
    struct str text = {0};
    r.n_units = 0;
    observe_step_text(&text, &r, 40);
    assert_string_equal(str_text(&text), "step 120/1500  loss 1.2345 (no labels)");
    str_release(&text);
}

/* Which of the first ten steps of a run of ten, with epochs of four, are logged. */
static void expect_logged(const char *settings, const char *expected)
{
    struct config *cfg;
    char shown[11] = "";
    expect_ok(config_load_text(&cfg, settings, strlen(settings), "demo.yaml", NULL, 0));
    for (int64_t step = 1; step <= 10; step++) {
        struct step_record r = {.step = step, .n_steps = 10, .ends_epoch = step % 4 == 0};
        shown[step - 1] = observe_is_due(cfg, &r) ? '+' : '.';
    }
    assert_string_equal(shown, expected);
    config_free(cfg);
}

static void the_logging_keys_say_which_steps_are_logged(void **state)
{
    (void)state;
    expect_logged("logging_steps: 3\n", "+.+..+..++");
    expect_logged("logging_steps: 3\nlogging_first_step: false\n", "..+..+..++");
    expect_logged("logging_steps: 3\nlogging_first_step: true\n", "+.+..+..++");
    expect_logged("logging_strategy: epoch\n", "...+...+.+");
    expect_logged("logging_strategy: no\n", "..........");
    expect_logged("logging_strategy: steps\n", "++++++++++");
}

static struct config *make_config(const struct scratch *s)
{
    char out[SCRATCH_PATH + 16];
    struct config *cfg;
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", s->folder);
    const char *overrides[] = {"model_name_or_path=tests/golden/llama", out, "max_steps=5",
                               "logging_steps=2", "datasets=[{type: synthetic, n_tokens: 1000}]"};
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    return cfg;
}

/* Line number i of the file as an object. */
static json_t *line_of(const char *path, int i)
{
    char *text, *rest;
    size_t n;
    expect_ok(file_read(path, &text, &n));
    char *line = strtok_r(text, "\n", &rest);
    for (; i > 0 && line; i--)
        line = strtok_r(NULL, "\n", &rest);
    json_t *j = line ? json_loads(line, JSON_REJECT_DUPLICATES, NULL) : NULL;
    mem_free(text);
    return j;
}

static const char *kind_of(json_t *j)
{
    const char *kind = json_string_value(json_object_get(j, "kind"));
    return kind ? kind : "";
}

static void metrics_have_one_object_for_each_event(void **state)
{
    (void)state;
    static const char *const due[] = {"config", "plan", "step", "eval", "save", "step", "end"};
    struct scratch s;
    struct observe_metrics o;
    struct forecast f = {.n_params = 12, .arena_bytes = 100, .context_bytes = 20};
    char path[SCRATCH_PATH];
    scratch_init(&s);
    struct config *cfg = make_config(&s);
    expect_ok(
        observe_metrics_open(&o, cfg, "20261115-170912-403127-8f3ac21b", &f, &task_language.unit));
    struct train_observer x = observe_metrics(&o);
    struct step_record r = a_step(1);
    struct eval_record e = {.step = 1,
                            .result = {.loss = 2.5, .n_units = 64, .unit = &task_language.unit}};
    struct train_result result = {.n_steps = 2, .last_step = 2};
    expect_ok(x.on_step(x.user, &r));
    expect_ok(x.on_eval(x.user, &e));
    expect_ok(x.on_save(x.user, 1, "out/checkpoint-1", 0.5));
    r.loss = (double)NAN;
    expect_ok(x.on_step(x.user, &r));
    (void)FAIL(ERR_NUMERIC, "the loss is NaN");
    expect_ok(observe_metrics_end(&o, &result, ERR_NUMERIC));
    observe_metrics_close(&o);
    scratch_path(&s, "out/metrics.jsonl", path);
    for (int i = 0; i < (int)ARRAY_LEN(due); i++) {
        json_t *j = line_of(path, i);
        assert_string_equal(kind_of(j), due[i]);
        if (i == 0)
            assert_string_equal(json_string_value(json_object_get(j, "run")),
                                "20261115-170912-403127-8f3ac21b");
        if (i == 1)
            assert_int_equal(json_integer_value(json_object_get(j, "device_bytes")), 120);
        if (i == 5)
            assert_true(json_is_null(json_object_get(j, "loss"))); /* JSON has no NaN */
        if (i == 6)
            assert_string_equal(json_string_value(json_object_get(j, "message")),
                                "the loss is NaN");
        json_decref(j);
    }
    assert_null(line_of(path, (int)ARRAY_LEN(due)));
    config_free(cfg);
    scratch_release(&s);
}

static const struct plan_trial two_plans[] = {
    {.rank = 1, .planned_s = 0.25, .measured_s = 0.2625, .n_turns = 2},
    {.rank = 2, .planned_s = 0.251}};

static void trials_say_what_each_plan_took(void **state)
{
    struct plan_trial tried[] = {two_plans[0], two_plans[1]};
    struct trials_record r = {
        .step = 18, .rank = 2, .is_settled = true, .tried = tried, .n_tried = 2};
    struct str text = {0};
    (void)state;
    tried[1].measured_s = 0.2575;
    observe_trials_text(&text, &r);
    assert_string_equal(str_text(&text),
                        "plans step 18  goes on with plan 2: plan 1 took 262.5 ms (250 planned), "
                        "plan 2 took 257.5 ms (251 planned)");
    str_release(&text);
}

/* One that was not timed yet has no time. */
static void so_do_the_metrics(void **state)
{
    const struct forecast f = {.arena_bytes = 100, .host_bytes = 20};
    const struct trials_record r = {.step = 9,
                                    .rank = 2,
                                    .changed = true,
                                    .tried = two_plans,
                                    .n_tried = 2,
                                    .forecast = &f,
                                    .carrying_s = 0.5};
    json_t *j = line_trials(&r);
    (void)state;
    assert_string_equal(kind_of(j), "trials");
    assert_int_equal(json_integer_value(json_object_get(j, "step")), 9);
    assert_int_equal(json_integer_value(json_object_get(j, "plan_rank")), 2);
    assert_int_equal(json_integer_value(json_object_get(j, "arena_bytes")), 100);
    assert_true(json_is_true(json_object_get(j, "changed")));
    assert_true(json_is_false(json_object_get(j, "settled")));
    assert_true(json_real_value(json_object_get(j, "carrying_s")) == 0.5);
    const json_t *tried = json_object_get(j, "tried");
    assert_int_equal(json_array_size(tried), 2);
    assert_true(json_real_value(json_object_get(json_array_get(tried, 0), "step_ms")) == 262.5);
    assert_true(json_real_value(json_object_get(json_array_get(tried, 1), "planned_ms")) == 251);
    assert_true(json_is_null(json_object_get(json_array_get(tried, 1), "step_ms")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(tried, 0), "turns")), 2);
    json_decref(j);
}

static int count_text(const char *data, size_t n, const char *text)
{
    int count = 0;
    size_t length = strlen(text);
    for (size_t i = 0; i + length <= n; i++)
        count += memcmp(data + i, text, length) == 0;
    return count;
}

static void tensorboard_gets_the_tags_people_know(void **state)
{
    (void)state;
    struct scratch s;
    struct observe_tensorboard o;
    char folder[SCRATCH_PATH], path[SCRATCH_PATH], *data;
    size_t n;
    scratch_init(&s);
    struct config *cfg = make_config(&s);
    expect_ok(observe_tensorboard_open(&o, cfg, scratch_path(&s, "board", folder)));
    struct train_observer x = observe_tensorboard(&o);
    struct eval_record e = {.step = 4, .result = {.loss = 2.5}};
    for (int step = 1; step <= 5; step++) {
        struct step_record r = a_step(step);
        r.n_steps = 5;
        expect_ok(x.on_step(x.user, &r));
    }
    expect_ok(x.on_eval(x.user, &e));
    (void)snprintf(path, sizeof(path), "%s", o.file.path);
    observe_tensorboard_close(&o);
    expect_ok(file_read(path, &data, &n));
    /* Steps 1 (the first), 2, 4 and 5 (the last). */
    assert_int_equal(count_text(data, n, "train/loss"), 4);
    assert_int_equal(count_text(data, n, "train/grad_norm"), 4);
    assert_int_equal(count_text(data, n, "train/learning_rate"), 4);
    assert_int_equal(count_text(data, n, "train/epoch"), 4);
    assert_int_equal(count_text(data, n, "train/tokens_per_second"), 4);
    assert_int_equal(count_text(data, n, "memory/arena_gib"), 4);
    assert_int_equal(count_text(data, n, "eval/loss"), 1);
    mem_free(data);
    config_free(cfg);
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_line_is_as_documented),
        cmocka_unit_test(a_slow_rate_is_no_nought),
        cmocka_unit_test(lines_keep_to_the_width_and_give_up_the_least_important_fields),
        cmocka_unit_test(a_long_run_still_has_lines_of_at_most_110_characters),
        cmocka_unit_test(a_step_without_labels_says_so_where_room_is_short_too),
        cmocka_unit_test(the_logging_keys_say_which_steps_are_logged),
        cmocka_unit_test(metrics_have_one_object_for_each_event),
        cmocka_unit_test(trials_say_what_each_plan_took),
        cmocka_unit_test(so_do_the_metrics),
        cmocka_unit_test(tensorboard_gets_the_tags_people_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
