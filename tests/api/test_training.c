/* What holds of every training run, whatever its keys: seen from outside, as tests/keys sees what
 * each key does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
        cmocka_unit_test(a_resumed_run_drops_what_the_whole_run_drops),
        cmocka_unit_test(a_resumed_run_goes_on_counting),
        cmocka_unit_test(every_parameter_is_rounded_with_numbers_of_its_own),
        cmocka_unit_test(gradients_that_need_not_wait_never_exist_all_at_once),
        cmocka_unit_test(every_evaluation_reads_the_same_batches),
        cmocka_unit_test(evaluations_change_no_step),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
