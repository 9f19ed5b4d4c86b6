/* A task with inputs and losses of its own goes through the engine, trainer, evaluator and reports
 * that language modelling goes through. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "report/observe.h"
#include "support/golden.h"
#include "support/regression_task.h"
#include "support/scratch.h"
#include "support/train_session.h"

enum { F = REGRESSION_FEATURES, K = REGRESSION_TARGETS, H = REGRESSION_HIDDEN };
enum { BATCH = 10, MOST_STEPS = 40, MOST_SETTINGS = 16 };

struct fixture {
    struct scratch scratch;
    struct config *config;
    struct session session;
};

/* Settings on top, NULL-terminated. A config has to name a model; this task reads none. */
static void open_session(struct fixture *f, const char *const *settings, bool evaluate)
{
    char folder[SCRATCH_PATH + 16];
    const char *overrides[MOST_SETTINGS] = {"device=cpu",
                                            "per_device_train_batch_size=10",
                                            "optim=sgd",
                                            "lr_scheduler_type=constant",
                                            "max_grad_norm=0",
                                            "weight_decay=0",
                                            "shuffle=false",
                                            "save_strategy=no",
                                            "model_name_or_path=none"};
    size_t n = 9;
    scratch_init(&f->scratch);
    (void)snprintf(folder, sizeof(folder), "output_dir=%s/out", f->scratch.folder);
    overrides[n++] = folder;
    while (*settings)
        overrides[n++] = *settings++;
    expect_ok(config_load(&f->config, NULL, overrides, n));
    expect_ok(config_resolve(f->config, 1));
    expect_ok(session_open(
        &f->session, f->config,
        &(struct session_options){
            .train = true, .evaluate = evaluate, .untimed = true, .task = &task_regression}));
    expect_ok(session_data(&f->session));
    expect_ok(session_start(&f->session));
}

static void close_session(struct fixture *f)
{
    session_close(&f->session);
    config_free(f->config);
    scratch_release(&f->scratch);
}

struct seen {
    int n;
    double total[MOST_STEPS], error[MOST_STEPS], penalty[MOST_STEPS];
    int64_t n_samples;
};

static enum status note_step(void *user, const struct step_record *r)
{
    struct seen *s = user;
    assert_int_equal(r->n_losses, 2);
    assert_string_equal(r->losses[0].name, "error");
    assert_string_equal(r->losses[1].name, "penalty");
    assert_true(s->n < MOST_STEPS);
    s->total[s->n] = r->loss;
    s->error[s->n] = r->losses[0].value;
    s->penalty[s->n++] = r->losses[1].value;
    s->n_samples = r->n_units_total;
    return OK;
}

static struct seen train(struct fixture *f)
{
    struct seen seen = {0};
    struct train_result result = {0};
    struct train_observer observer = {.on_step = note_step, .user = &seen};
    expect_ok(train_session(
        &f->session, &(struct train_options){.observers = &observer, .n_observers = 1}, &result));
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(executor_high_water(f->session.engine.executor, (enum tier)t),
                         f->session.engine.work.n_bytes[t]);
    train_result_release(&result);
    return seen;
}

static void a_task_with_two_losses_trains(void **state)
{
    (void)state;
    struct fixture f;
    const char *const settings[] = {"max_steps=40", "learning_rate=0.05", NULL};
    open_session(&f, settings, false);
    struct seen seen = train(&f);
    assert_int_equal(seen.n, 40);
    assert_int_equal(seen.n_samples, 40 * BATCH);
    assert_true(seen.total[39] < 0.6 * seen.total[0]);
    for (int i = 0; i < seen.n; i++)
        assert_true(fabs(seen.total[i] - (seen.error[i] + REGRESSION_PENALTY * seen.penalty[i])) <
                    1e-6);
    close_session(&f);
}

static void its_losses_have_the_same_bits_whatever_is_made_again(void **state)
{
    (void)state;
    static const char *const ways[] = {"gradient_checkpointing=false",
                                       "gradient_checkpointing=true", "gradient_checkpointing=1-1"};
    static const char *const micro[] = {"gradient_accumulation_steps=1",
                                        "gradient_accumulation_steps=3"};
    for (size_t m = 0; m < ARRAY_LEN(micro); m++) {
        struct seen first;
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            struct fixture f;
            const char *const settings[] = {"max_steps=8", "learning_rate=0.05", ways[i], micro[m],
                                            NULL};
            open_session(&f, settings, false);
            struct seen seen = train(&f);
            if (i == 0)
                first = seen;
            assert_memory_equal(first.total, seen.total, sizeof(seen.total));
            assert_memory_equal(first.error, seen.error, sizeof(seen.error));
            assert_memory_equal(first.penalty, seen.penalty, sizeof(seen.penalty));
            close_session(&f);
        }
    }
}

static void its_micro_batches_add_up_to_the_batch(void **state)
{
    (void)state;
    static const char *const cuts[][2] = {
        {"per_device_train_batch_size=50", "gradient_accumulation_steps=1"},
        {"per_device_train_batch_size=10", "gradient_accumulation_steps=5"}};
    struct seen seen[2];
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        struct fixture f;
        const char *const settings[] = {"max_steps=4", "learning_rate=0.05", cuts[i][0], cuts[i][1],
                                        NULL};
        open_session(&f, settings, false);
        seen[i] = train(&f);
        close_session(&f);
    }
    assert_int_equal(seen[1].n_samples, 4 * REGRESSION_SAMPLES);
    for (int k = 0; k < 4; k++) {
        assert_true(fabs(seen[0].error[k] - seen[1].error[k]) < 1e-5);
        assert_true(fabs(seen[0].penalty[k] - seen[1].penalty[k]) < 1e-5);
    }
}

/* A checkpoint is a model with its states: where there is no model there is none. */
static void it_cannot_be_saved_and_says_so(void **state)
{
    (void)state;
    struct fixture f;
    struct train_result result = {0};
    const char *const settings[] = {"max_steps=2", "save_strategy=steps", "save_steps=1", NULL};
    open_session(&f, settings, false);
    assert_int_equal(train_session(&f.session, &(struct train_options){0}, &result),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(status_message(), "regression: no checkpoint"));
    train_result_release(&result);
    close_session(&f);
}

/* ---- gradients ------------------------------------------------------------------------------- */

enum { N_WEIGHTS = H * F + H * H + K * H };

static void layer(const double *w, const double *x, int n_out, int n_in, bool bend, double *y)
{
    for (int o = 0; o < n_out; o++) {
        y[o] = 0;
        for (int i = 0; i < n_in; i++)
            y[o] += w[o * n_in + i] * x[i];
        if (bend)
            y[o] = tanh(y[o]);
    }
}

/* What is minimised on the first batch, in double arithmetic. */
static double objective(const double *w)
{
    double total = 0;
    for (int64_t row = 0; row < BATCH; row++) {
        float features[F], targets[K];
        double x[F], a[H], b[H], y[K];
        regression_sample(row, features, targets);
        for (int k = 0; k < F; k++)
            x[k] = (double)features[k];
        layer(w, x, H, F, true, a);
        layer(w + H * F, a, H, H, true, b);
        layer(w + H * F + H * H, b, K, H, false, y);
        for (int k = 0; k < K; k++) {
            double error = y[k] - (double)targets[k];
            total += error * error + REGRESSION_PENALTY * y[k] * y[k];
        }
    }
    return total / BATCH;
}

static void read_weights(const struct fixture *f, double *w)
{
    const struct engine *e = &f->session.engine;
    for (int i = 0; i < e->n_params; i++) {
        const float *x = e->param_tensors[i].data;
        for (int64_t k = 0; k < shape_elems(&e->param_tensors[i].shape); k++)
            *w++ = (double)x[k];
    }
}

/* Plain SGD moves a weight by the learning rate times its gradient. */
static void its_gradients_are_those_of_the_weighted_sum_of_losses(void **state)
{
    (void)state;
    struct fixture f;
    const double lr = 0.1, step = 1e-5;
    double before[N_WEIGHTS], after[N_WEIGHTS];
    const char *const settings[] = {"max_steps=1", "learning_rate=0.1", NULL};
    open_session(&f, settings, false);
    read_weights(&f, before);
    struct seen seen = train(&f);
    read_weights(&f, after);
    assert_true(fabs(seen.total[0] - objective(before)) < 1e-5);
    for (int i = 0; i < N_WEIGHTS; i++) {
        double kept = before[i], slope;
        before[i] = kept + step;
        slope = objective(before);
        before[i] = kept - step;
        slope = (slope - objective(before)) / (2 * step);
        before[i] = kept;
        if (fabs((kept - after[i]) / lr - slope) > 1e-4)
            fail_msg("weight %d: gradient %g, slope %g", i, (kept - after[i]) / lr, slope);
    }
    close_session(&f);
}

/* ---- evaluation and reports ------------------------------------------------------------------ */

static void its_evaluation_has_its_losses_and_metrics(void **state)
{
    (void)state;
    struct fixture f;
    struct evaluation e;
    const char *const settings[] = {"max_steps=1", "val_set_size=25",
                                    "per_device_eval_batch_size=10", NULL};
    open_session(&f, settings, true);
    expect_ok(session_evaluate(&f.session, 0, &e));
    assert_int_equal(e.n_batches, 3); /* the last one is half blank */
    assert_int_equal(e.n_units, 25);
    assert_int_equal(e.n_values, 3);
    assert_string_equal(e.values[2].name, "distance");
    assert_true(fabs(e.loss - (e.values[0].value + REGRESSION_PENALTY * e.values[1].value)) < 1e-9);
    assert_true(fabs(e.values[2].value - sqrt(e.values[0].value)) < 1e-9);
    json_t *line = line_eval(&(struct eval_record){.result = e});
    assert_int_equal(json_integer_value(json_object_get(line, "samples")), 25);
    assert_true(json_real_value(json_object_get(line, "penalty")) == e.values[1].value);
    assert_true(json_real_value(json_object_get(line, "distance")) == e.values[2].value);
    json_decref(line);
    close_session(&f);
}

static void reports_speak_of_its_units_and_name_its_losses(void **state)
{
    (void)state;
    struct str text = {0};
    const struct metric_value losses[] = {{"error", 0.5, true}, {"penalty", 2.0, true}};
    struct step_record r = {.step = 3,
                            .n_steps = 10,
                            .loss = 1.0,
                            .losses = losses,
                            .n_losses = 2,
                            .unit = &task_regression.unit,
                            .n_units = 10,
                            .n_units_total = 30,
                            .units_per_s = 1234.0};
    observe_step_text(&text, &r, 200);
    assert_non_null(strstr(str_text(&text), "1,234 samples/s"));
    str_release(&text);
    json_t *line = line_step(&r);
    assert_int_equal(json_integer_value(json_object_get(line, "samples")), 30);
    assert_true(json_real_value(json_object_get(line, "samples_s")) == 1234.0);
    assert_true(json_real_value(json_object_get(line, "error")) == 0.5);
    assert_true(json_real_value(json_object_get(line, "penalty")) == 2.0);
    assert_true(json_real_value(json_object_get(line, "loss")) == 1.0);
    assert_null(json_object_get(line, "tokens"));
    json_decref(line);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_with_two_losses_trains),
        cmocka_unit_test(its_losses_have_the_same_bits_whatever_is_made_again),
        cmocka_unit_test(its_micro_batches_add_up_to_the_batch),
        cmocka_unit_test(it_cannot_be_saved_and_says_so),
        cmocka_unit_test(its_gradients_are_those_of_the_weighted_sum_of_losses),
        cmocka_unit_test(its_evaluation_has_its_losses_and_metrics),
        cmocka_unit_test(reports_speak_of_its_units_and_name_its_losses),
    };
    return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
