/* What holds of every training run, whatever its keys: seen from outside, as tests/keys sees what
 * each key does. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/machine.h"
#include "support/trial.h"

/* ---- resuming -------------------------------------------------------------------------------- */

#define DROPS                                                                                    \
    "model={model_type: gpt2, vocab_size: 257, n_embd: 16, n_layer: 2, n_head: 2, n_positions: " \
    "64, resid_pdrop: 0.5, embd_pdrop: 0.5, attn_pdrop: 0.5}",                                   \
        "gradient_accumulation_steps=2", "save_strategy=steps"

/* Dropout is drawn by the number of the micro-step: a resumed run goes on counting. */
static void a_resumed_run_drops_what_the_whole_run_drops(void **state)
{
    (void)state;
    struct trial whole, first, rest;
    const char *parts = trial_path("output_dir", "parts");
    TRAIN(&whole, DROPS, "max_steps=5");
    TRAIN(&first, DROPS, "max_steps=2", parts);
    TRAIN(&rest, DROPS, "max_steps=5", parts, "resume_from_checkpoint=last");
    assert_int_equal(rest.n_steps, 3);
    for (int i = 0; i < 3; i++)
        assert_true(rest.steps[i].loss == whole.steps[2 + i].loss);
}

/* Counts go on too: of tokens, of epochs, and of the steps that a schedule is made of. */
static void a_resumed_run_goes_on_counting(void **state)
{
    (void)state;
    struct trial whole, first, rest;
    const char *counted = trial_path("output_dir", "counted");
#define LINEAR trial_text(), "lr_scheduler_type=linear", "warmup_steps=3", "save_strategy=steps"
    TRAIN(&whole, LINEAR, "max_steps=12");
    TRAIN(&first, LINEAR, "max_steps=12", counted, "save_steps=4");
    TRAIN(&rest, LINEAR, "max_steps=12", counted, "resume_from_checkpoint=checkpoint-4");
    assert_int_equal(rest.n_steps, 8);
    for (int i = 0; i < 8; i++) {
        const struct snug_step *a = &whole.steps[4 + i], *b = &rest.steps[i];
        assert_int_equal(b->step, a->step);
        assert_int_equal(b->n_tokens_total, a->n_tokens_total);
        assert_true(b->epoch == a->epoch && b->learning_rate == a->learning_rate);
        assert_true(b->loss == a->loss && b->grad_norm == a->grad_norm);
    }
}

/* ---- updates --------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

/* Parameters that shared the numbers they are rounded with would err in the same places. */
static void every_parameter_is_rounded_with_numbers_of_its_own(void **state)
{
    (void)state;
    enum { MOST = 64 };
    long long seeds[MOST];
    int n = 0;
    char *text = GRAPH("bf16=true", "master_dtype=bf16");
    for (const char *at = text; (at = strstr(at, "seed=")) && n < MOST; at++)
        seeds[n++] = strtoll(at + 5, NULL, 10);
    snug_free(text);
    assert_in_range(n, 4 * TRIAL_LAYERS, MOST - 1);
    qsort(seeds, (size_t)n, sizeof(seeds[0]), compare_numbers);
    for (int i = 1; i < n; i++)
        assert_true(seeds[i] != seeds[i - 1]);
}

/* Without a norm to wait for each gradient goes into its update as soon as it is complete: never
 * do all of them exist. Weights of many blocks make that visible. */
static void gradients_that_need_not_wait_never_exist_all_at_once(void **state)
{
    (void)state;
    struct trial early, late;
#define BROAD "model.num_hidden_layers=8", "model.hidden_size=64", "model.intermediate_size=256"
    TRAIN(&early, BROAD, "max_grad_norm=0");
    TRAIN(&late, BROAD, "max_grad_norm=1e9");
    int64_t all = late.plan.n_params * (int64_t)sizeof(float);
    assert_true(early.plan.breakdown[SNUG_MEMORY_GRADIENTS] < all / 4);
    assert_true(late.plan.breakdown[SNUG_MEMORY_GRADIENTS] > all * 3 / 4);
    assert_true(early.plan.arena_bytes < late.plan.arena_bytes - all / 4);
    assert_true(trial_same_losses(&early, &late));
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* At a rate of 0 nothing else could make the losses differ. */
static void every_evaluation_reads_the_same_batches(void **state)
{
    (void)state;
    struct trial t;
    TRAIN(&t, trial_text(), "val_set_size=6", "eval_max_batches=1", "eval_strategy=steps",
          "eval_steps=1", "eval_on_start=true", "learning_rate=0", "max_steps=5");
    assert_int_equal(t.n_evals, 6);
    for (int i = 1; i < t.n_evals; i++)
        assert_true(t.evals[i].loss == t.evals[0].loss);
}

/* Of its own data, of what is held out, or else of all that would be trained on. */
static void an_evaluation_by_itself_says_what_it_was_over(void **state)
{
    (void)state;
    struct snug_evaluation e;
    double start = now_s();
    EVALUATE(&e, trial_text());
    assert_true(e.seconds > 0 && e.seconds < now_s() - start);
    assert_string_equal(e.data, "datasets");
    assert_int_equal(e.n_tokens, TRIAL_WINDOWS * TRIAL_LENGTH);
    assert_int_equal(e.n_batches, TRIAL_WINDOWS / TRIAL_BATCH);
    EVALUATE(&e, trial_text(), "val_set_size=6");
    assert_string_equal(e.data, "val_set_size");
    assert_int_equal(e.n_tokens, 6 * TRIAL_LENGTH);
    EVALUATE(&e, trial_path("eval_datasets.0.path", "text.txt"), "per_device_eval_batch_size=3");
    assert_string_equal(e.data, "eval_datasets");
    assert_int_equal(e.n_tokens, TRIAL_WINDOWS * TRIAL_LENGTH);
    assert_int_equal(e.n_batches, 7);
}

/* A sample of it: there is more than any evaluation gets through. */
static void evaluating_on_data_without_end_comes_to_an_end(void **state)
{
    (void)state;
    struct trial t;
    TRAIN(&t, "eval_datasets=[{type: synthetic}]", "eval_on_start=true", "max_steps=1");
    assert_in_range(t.evals[0].n_batches, 16, 1024);
    assert_int_equal(t.evals[0].n_tokens, t.evals[0].n_batches * TRIAL_BATCH * TRIAL_LENGTH);
}

/* Evaluations do not disturb training: neither its data nor its weights. */
static void evaluations_change_no_step(void **state)
{
    (void)state;
    struct trial with, without;
    TRAIN(&without, trial_text(), "val_set_size=6", "max_steps=6");
    TRAIN(&with, trial_text(), "val_set_size=6", "max_steps=6", "eval_strategy=steps",
          "eval_steps=1");
    assert_int_equal(with.n_evals, 6);
    assert_true(trial_same_losses(&with, &without));
}

/* ---- what is told ---------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_rates(const struct snug_train_result *r)
{
    double sorted[TRIAL_MOST_STEPS];
    memcpy(sorted, r->step_s, (size_t)r->n_kept * sizeof(*sorted));
    qsort(sorted, (size_t)r->n_kept, sizeof(*sorted), compare_times);
    assert_true(r->median_step_s == sorted[r->n_kept / 2]);
    expect_within(r->samples_per_s, 2 * TRIAL_BATCH / r->median_step_s, 1e-9);
    expect_within(r->tokens_per_s, TRIAL_LENGTH * r->samples_per_s, 1e-9);
    assert_true(r->mfu > 0 && r->mfu <= 1 && r->seconds > r->median_step_s);
}

/* What does not fit is not timed: its steps are foretold by the device's rates. Goes before the
 * other tests: what was timed once is known. */
static void a_forecast_says_what_it_is_made_of(void **state)
{
    (void)state;
    struct trial by_rate, measured;
    PLAN(&by_rate, "device_memory=1KiB");
    assert_string_equal(by_rate.step_source, "rates");
    assert_in_range(by_rate.plan.n_kernels, 10, 1000);
    assert_int_equal(by_rate.plan.n_by_rate, by_rate.plan.n_kernels);
    PLAN(&measured, "seed=7");
    assert_string_equal(measured.step_source, "measured kernels");
    assert_int_equal(measured.plan.n_kernels, by_rate.plan.n_kernels);
    assert_int_equal(measured.plan.n_by_rate, 0);
    assert_true(measured.plan.step_s > 0 && measured.plan.step_s != by_rate.plan.step_s);
    expect_within(measured.plan.tokens_per_s, TRIAL_BATCH * TRIAL_LENGTH / measured.plan.step_s,
                  1e-9);
}

/* The result of a run and what its observer saw of it are the same. */
static void the_result_sums_up_the_steps(void **state)
{
    (void)state;
    struct trial t;
    struct snug_train_result r;
    struct snug_run *run =
        trial_train_open(&t, OVERRIDES(trial_text(), "max_steps=9", "save_strategy=steps",
                                       "save_steps=4", "gradient_accumulation_steps=2"));
    snug_run_result(run, &r);
    assert_true(r.n_steps == 9 && r.last_step == 9 && r.n_kept == 9 && r.n_skipped == 0);
    double seconds = 0;
    for (int i = 0; i < 9; i++) {
        const struct snug_step *s = &t.steps[i];
        assert_true(s->step == i + 1 && s->n_steps == 9);
        assert_true(s->loss == r.losses[i] && s->seconds == r.step_s[i] && s->seconds > 0);
        expect_within(s->tokens_per_s, 2 * TRIAL_BATCH * TRIAL_LENGTH / s->seconds, 1e-9);
        assert_true(s->mfu > 0 && s->mfu <= 1 && s->loss_scale == 0 && !s->skipped);
        assert_true(s->arena_bytes == s->arena_predicted && s->device_bytes > s->arena_bytes);
        assert_int_equal(s->n_tokens_total, (i + 1) * 2 * TRIAL_BATCH * TRIAL_LENGTH);
        expect_within(s->epoch, (i + 1) * 2.0 * TRIAL_BATCH / TRIAL_WINDOWS, 1e-9);
        seconds += s->seconds;
        /* What is left takes what was taken: no less than the steps alone, no more than all. */
        double per_step = s->eta_s / (i == 8 ? 1 : 8 - i);
        assert_true(i == 8 ? s->eta_s == 0 : per_step >= 0.99 * seconds / (i + 1));
        assert_true(per_step <= r.seconds / (i + 1));
    }
    expect_rates(&r);
    assert_true(r.arena_bytes == t.plan.arena_bytes && r.host_bytes == t.plan.host_bytes);
    assert_non_null(strstr(r.last_checkpoint, "checkpoint-9"));
    trial_close(run);
}

/* No shorter than the steps so far were, from the first one on; and nothing after the last. */
static void what_is_left_is_reckoned_from_the_steps_so_far(void **state)
{
    (void)state;
    struct trial t;
    double so_far = 0;
    TRAIN(&t, "max_steps=5");
    assert_int_equal(t.n_steps, 5);
    for (int i = 0; i < t.n_steps; i++) {
        so_far += t.steps[i].seconds;
        assert_true(t.steps[i].eta_s >= 0.99 * so_far / (i + 1) * (t.n_steps - i - 1));
    }
    assert_true(t.steps[t.n_steps - 1].eta_s <= 0);
}

/* Pauses the run in this folder after its first step, for a while. */
static void *pause_for_a_while(void *folder)
{
    const struct timespec moment = {0, 1000 * 1000}, pause = {0, 600 * 1000 * 1000};
    char path[4096];
    struct stat found;
    (void)snprintf(path, sizeof(path), "%s/checkpoint-1", (const char *)folder);
    for (int i = 0; i < 20000 && stat(path, &found) != 0; i++)
        (void)nanosleep(&moment, NULL);
    (void)snprintf(path, sizeof(path), "%s/PAUSE", (const char *)folder);
    FILE *f = fopen(path, "w");
    if (f)
        (void)fclose(f);
    (void)nanosleep(&pause, NULL);
    (void)unlink(path);
    return NULL;
}

/* Waiting is not training: what is left takes what the steps took, without the pause between. */
static void a_pause_is_no_part_of_what_is_left(void **state)
{
    (void)state;
    struct trial t;
    struct snug_train_result r;
    pthread_t other;
    char folder[4096];
    const char *setting = trial_path("output_dir", "paused");
    (void)snprintf(folder, sizeof(folder), "%s", strchr(setting, '=') + 1);
    assert_int_equal(pthread_create(&other, NULL, pause_for_a_while, folder), 0);
    struct snug_run *run = trial_train_open(
        &t, OVERRIDES(setting, "max_steps=20", "save_strategy=steps", "save_steps=1"));
    assert_int_equal(pthread_join(other, NULL), 0);
    snug_run_result(run, &r);
    assert_true(t.steps[18].eta_s * 19 < r.seconds); /* the pause is in that */
    trial_close(run);
}

/* Data of one sequence is an epoch a step. */
static void epochs_are_counted_in_passes_over_the_data(void **state)
{
    (void)state;
    struct trial t;
    TRAIN(&t, "datasets=[{type: synthetic, n_tokens: 17}]", "max_seq_length=16",
          "per_device_train_batch_size=1", "max_steps=3");
    for (int i = 0; i < 3; i++)
        expect_within(t.steps[i].epoch, i + 1.0, 1e-9);
}

/* 2^64 overflows whatever is computed. */
static void steps_that_overflow_are_counted(void **state)
{
    (void)state;
    struct trial t;
    struct snug_train_result r;
    struct snug_run *run =
        trial_train_open(&t, OVERRIDES("fp16=true", "initial_scale_power=64", "max_steps=4"));
    snug_run_result(run, &r);
    assert_int_equal(r.n_skipped, 4);
    assert_true(r.loss_scale == t.steps[3].loss_scale && r.loss_scale < t.steps[0].loss_scale);
    trial_close(run);
}

/* Rates of a thousand make numbers that are none. */
static void a_loss_that_is_not_finite_ends_the_run_with_advice(void **state)
{
    (void)state;
    REFUSED("Lower learning_rate (1000)", "optim=sgd", "learning_rate=1000", "max_grad_norm=0",
            "weight_decay=1000", "max_steps=20");
}

static int begin(void **state)
{
    (void)state;
    trials_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    trials_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forecast_says_what_it_is_made_of),
        cmocka_unit_test(a_resumed_run_drops_what_the_whole_run_drops),
        cmocka_unit_test(a_resumed_run_goes_on_counting),
        cmocka_unit_test(every_parameter_is_rounded_with_numbers_of_its_own),
        cmocka_unit_test(gradients_that_need_not_wait_never_exist_all_at_once),
        cmocka_unit_test(every_evaluation_reads_the_same_batches),
        cmocka_unit_test(an_evaluation_by_itself_says_what_it_was_over),
        cmocka_unit_test(evaluating_on_data_without_end_comes_to_an_end),
        cmocka_unit_test(evaluations_change_no_step),
        cmocka_unit_test(the_result_sums_up_the_steps),
        cmocka_unit_test(what_is_left_is_reckoned_from_the_steps_so_far),
        cmocka_unit_test(a_pause_is_no_part_of_what_is_left),
        cmocka_unit_test(epochs_are_counted_in_passes_over_the_data),
        cmocka_unit_test(steps_that_overflow_are_counted),
        cmocka_unit_test(a_loss_that_is_not_finite_ends_the_run_with_advice),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
