/* Loss scaling: an overflow changes nothing but the scaler, the scale comes down until steps count
 * again, and grows when they do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "report/observe.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"
#include "support/training.h"
#include "task/language.h"

static struct training_options half(double initial, int64_t window, int64_t hysteresis)
{
    static struct precision f16;
    f16 = precision_f16();
    return (struct training_options){.golden = "llama",
                                     .batch = 2,
                                     .seq_len = 24,
                                     .precision = &f16,
                                     .max_grad_norm = 1.0,
                                     .scaling = {.initial = initial,
                                                 .growth = 2.0,
                                                 .backoff = 0.5,
                                                 .minimum = 1.0,
                                                 .window = window,
                                                 .hysteresis = hysteresis}};
}

static void start(struct training *t, const struct training_options *o)
{
    training_init(t, o);
    training_emit(t);
    training_start(t);
}

static const void *storage_of(const struct training *t, const char *name)
{
    const struct storage_entry *e = storage_find(&t->engine.work.storage, name);
    assert_non_null(e);
    return executor_storage_pointer(t->engine.executor, e);
}

static int count_of(const struct training *t, const char *name)
{
    return *(const int32_t *)storage_of(t, name);
}

static double scale_of(const struct training *t)
{
    return (double)*(const float *)storage_of(t, "scaler.scale");
}

/* Every byte that outlives a step, but the scaler's. */
static uint64_t rest_of(const struct training *t)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < t->engine.work.storage.entries.n; i++) {
        const struct storage_entry *e = &t->engine.work.storage.entries.items[i];
        const unsigned char *p = executor_storage_pointer(t->engine.executor, e);
        for (int64_t k = 0; strncmp(e->name, "scaler.", 7) != 0 && k < e->n_bytes; k++)
            h = (h ^ p[k]) * 1099511628211u;
    }
    return h;
}

static void an_overflow_changes_nothing_but_the_scaler(void **state)
{
    struct training t;
    (void)state;
    for (int clips = 0; clips <= 1; clips++) {
        for (int64_t n_micro = 1; n_micro <= 2; n_micro++) {
            struct training_options o = half(ldexp(1.0, 40), 2000, 1);
            o.max_grad_norm = clips;
            o.n_micro = n_micro;
            start(&t, &o);
            int step = 0;
            do {
                uint64_t before = rest_of(&t);
                double scale = scale_of(&t);
                training_step(&t, step);
                bool overflow = !isfinite(training_output(&t, "grad_norm"));
                assert_true((rest_of(&t) == before) == overflow);
                assert_true(scale_of(&t) == (overflow ? scale / 2 : scale));
                assert_true((double)training_output(&t, "loss_scale") == scale_of(&t));
            } while (count_of(&t, "scaler.applied_steps") == 0 && ++step < 40);
            print_message("recovered after %d overflows at scale %g\n", step, scale_of(&t));
            assert_in_range(step, 5, 39);
            assert_int_equal(count_of(&t, "scaler.applied_steps"), 1);
            assert_int_equal(count_of(&t, "scaler.good_steps"), 1);
            training_release(&t);
        }
    }
}

/* Skipped steps leave no trace: what is learnt afterwards is what a run without them learns. */
static void bias_correction_counts_applied_steps_only(void **state)
{
    struct training high, low;
    struct training_options o = half(ldexp(1.0, 30), 2000, 1);
    int n_skipped = 0;
    (void)state;
    o.one_batch = true;
    start(&high, &o);
    while (count_of(&high, "scaler.applied_steps") == 0) {
        training_step(&high, n_skipped++);
        assert_true(n_skipped < 40);
    }
    o.scaling.initial = scale_of(&high);
    start(&low, &o);
    training_step(&low, 0);
    for (int step = 1; step < 5; step++) {
        training_step(&high, n_skipped + step);
        training_step(&low, step);
    }
    assert_true(n_skipped > 1);
    assert_true(training_digest(&high) == training_digest(&low));
    training_release(&high);
    training_release(&low);
}

static void the_scale_grows_after_the_window(void **state)
{
    struct training t;
    struct training_options o = half(8.0, 3, 1);
    (void)state;
    start(&t, &o);
    for (int step = 0; step < 7; step++)
        training_step(&t, step);
    assert_true(scale_of(&t) == 32.0);
    assert_int_equal(count_of(&t, "scaler.good_steps"), 1);
    assert_int_equal(count_of(&t, "scaler.applied_steps"), 7);
    training_release(&t);
}

static void hysteresis_tolerates_overflows(void **state)
{
    struct training t;
    struct training_options o = half(ldexp(1.0, 40), 2000, 3);
    (void)state;
    start(&t, &o);
    for (int step = 0; step < 4; step++) {
        training_step(&t, step);
        assert_true(scale_of(&t) == ldexp(1.0, step < 2 ? 40 : 40 - (step - 1)));
    }
    assert_int_equal(count_of(&t, "scaler.tolerated"), 2);
    training_release(&t);
}

/* Powers of two are exact: the scale does not show in what is learnt. */
static void the_scale_does_not_change_the_gradients(void **state)
{
    double norms[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct training t;
        struct training_options o = half(i ? 4096.0 : 1024.0, 2000, 1);
        start(&t, &o);
        training_step(&t, 0);
        norms[i] = (double)training_output(&t, "grad_norm");
        training_release(&t);
    }
    print_message("norms %.9g and %.9g\n", norms[0], norms[1]);
    assert_true(fabs(norms[0] - norms[1]) < 1e-3 * norms[0]);
}

/* ---- the trainer ----------------------------------------------------------------------------- */

static enum status train_half(const char *folder, const char *extra1, const char *extra2,
                              struct train_result *result)
{
    char output[600];
    (void)snprintf(output, sizeof(output), "output_dir=%s", folder);
    const char *overrides[] = {"model_name_or_path=tests/golden/llama",
                               "device=cpu",
                               "max_seq_length=16",
                               "per_device_train_batch_size=2",
                               "learning_rate=1e-3",
                               "datasets.0.type=synthetic",
                               "log_format=quiet",
                               "report_to=none",
                               "save_strategy=no",
                               "max_steps=40",
                               "fp16=true",
                               output,
                               extra1,
                               extra2};
    struct config *cfg;
    struct session s;
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    enum status status = train_session(&s, &(struct train_options){0}, result);
    session_close(&s);
    config_free(cfg);
    return status;
}

static void skipped_steps_do_not_end_a_run(void **state)
{
    struct scratch s;
    struct train_result r;
    (void)state;
    scratch_init(&s);
    expect_ok(train_half(s.folder, "initial_scale_power=34", "loss_scale_window=1000", &r));
    assert_int_equal(r.n_steps, 40);
    assert_in_range(r.n_skipped, 3, 30);
    assert_true(r.loss_scale > 0 && r.loss_scale < ldexp(1.0, 34));
    assert_true(isfinite(r.losses[39]));
    train_result_release(&r);
    scratch_release(&s);
}

static void a_scale_that_cannot_come_down_ends_the_run_with_advice(void **state)
{
    struct scratch s;
    struct train_result r;
    (void)state;
    scratch_init(&s);
    assert_int_equal(train_half(s.folder, "loss_scale=1e15", "seed=1", &r), ERR_NUMERIC);
    expect_message("loss_scale: 0");
    assert_int_equal(r.n_skipped, 20);
    train_result_release(&r);
    assert_int_equal(train_half(s.folder, "initial_scale_power=50", "min_loss_scale=1e12", &r),
                     ERR_NUMERIC);
    expect_message("min_loss_scale");
    /* From 2^50 down to 2^40 it is halved, and then 20 steps have the least, which is below. */
    assert_int_equal(r.n_skipped, 10 + 20);
    train_result_release(&r);
    scratch_release(&s);
}

static void lines_tell_the_scale_and_what_was_skipped(void **state)
{
    struct step_record r = {.step = 3,
                            .n_steps = 9,
                            .loss = 2,
                            .unit = &task_language.unit,
                            .grad_norm = (double)INFINITY,
                            .loss_scale = 512,
                            .skipped = true,
                            .device_predicted = 1 << 20};
    struct str text = {0};
    (void)state;
    observe_step_text(&text, &r, 200);
    assert_non_null(strstr(str_text(&text), "scale 512 (skipped)"));
    json_t *line = line_step(&r);
    assert_true(json_number_value(json_object_get(line, "loss_scale")) == 512.0);
    assert_true(json_is_true(json_object_get(line, "skipped")));
    assert_true(json_is_null(json_object_get(line, "grad_norm")));
    json_decref(line);
    str_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_changes_nothing_but_the_scaler),
        cmocka_unit_test(bias_correction_counts_applied_steps_only),
        cmocka_unit_test(the_scale_grows_after_the_window),
        cmocka_unit_test(hysteresis_tolerates_overflows),
        cmocka_unit_test(the_scale_does_not_change_the_gradients),
        cmocka_unit_test(skipped_steps_do_not_end_a_run),
        cmocka_unit_test(a_scale_that_cannot_come_down_ends_the_run_with_advice),
        cmocka_unit_test(lines_tell_the_scale_and_what_was_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
