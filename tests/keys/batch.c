/* Keys of the batch and of the length of a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/machine.h"
#include "keys/keys.h"
#include "support/trial.h"

/* `auto` cuts a global batch as the budgets allow: into a number of micro-batches that it says, and
 * the losses are those of a run with this number. */
static void expect_chosen_micro_batch(void)
{
    struct trial whole, open, given;
    char micro[64], steps[64], budget[64];
    PLAN(&whole, "per_device_train_batch_size=auto", "train_batch_size=8");
    assert_int_equal(whole.plan.micro_batch * whole.plan.n_micro, 8);
    PLAN(&given, "per_device_train_batch_size=2", "train_batch_size=8", "offload_optimizer=false",
         "offload_param=false", "activation_offloading=false");
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                   (long long)given.plan.device_needs);
    TRAIN(&open, trial_text(), "per_device_train_batch_size=auto", "train_batch_size=8", budget,
          "offload_optimizer=false", "offload_param=false", "activation_offloading=false",
          "gradient_checkpointing=false");
    assert_true(open.plan.fits && open.plan.micro_batch <= 2);
    assert_int_equal(open.plan.micro_batch * open.plan.n_micro, 8);
    assert_int_equal(open.steps[0].n_tokens, 8 * TRIAL_LENGTH);
    (void)snprintf(micro, sizeof(micro), "per_device_train_batch_size=%lld",
                   (long long)open.plan.micro_batch);
    (void)snprintf(steps, sizeof(steps), "gradient_accumulation_steps=%lld",
                   (long long)open.plan.n_micro);
    TRAIN(&given, trial_text(), micro, steps);
    assert_true(trial_same_losses(&open, &given));
    REFUSED("write train_batch_size", "per_device_train_batch_size=auto");
    PLAN(&given, "per_device_train_batch_size=auto", "train_batch_size=8",
         "gradient_accumulation_steps=4");
    assert_int_equal(given.plan.micro_batch, 2);
    REFUSED("train_batch_size 8", "per_device_train_batch_size=auto", "train_batch_size=8",
            "gradient_accumulation_steps=3");
}

/* A run that is resumed goes on with the micro-batch it had, whatever would be chosen now. */
static void expect_resumed_micro_batch(int micro)
{
    struct trial t;
    char given[64], folder[32];
    (void)snprintf(given, sizeof(given), "per_device_train_batch_size=%d", micro);
    (void)snprintf(folder, sizeof(folder), "micro-%d", micro);
    const char *out = trial_path("output_dir", folder);
    TRAIN(&t, trial_text(), out, given, "train_batch_size=8", "max_steps=2", "save_steps=2",
          "save_strategy=steps");
    assert_int_equal(t.n_saves, 1);
    TRAIN(&t, trial_text(), out, "per_device_train_batch_size=auto", "train_batch_size=8",
          "max_steps=3", "resume_from_checkpoint=last");
    assert_int_equal(t.plan.micro_batch, micro);
    assert_int_equal(t.n_steps, 1);
}

void key_per_device_train_batch_size(void)
{
    struct trial t;
    TRAIN(&t, "per_device_train_batch_size=5");
    assert_int_equal(t.plan.micro_batch, 5);
    assert_int_equal(t.steps[0].n_tokens, 5 * TRIAL_LENGTH);
    expect_chosen_micro_batch();
    expect_resumed_micro_batch(1);
    expect_resumed_micro_batch(4);
}

/* Two micro-batches of two sequences are one batch of four: the same mean, up to rounding. */
void key_gradient_accumulation_steps(void)
{
    struct trial a, b;
    TRAIN(&a, trial_text(), "gradient_accumulation_steps=2");
    TRAIN(&b, trial_text(), "per_device_train_batch_size=4");
    assert_int_equal(a.plan.n_micro, 2);
    for (int i = 0; i < a.n_steps; i++) {
        assert_int_equal(a.steps[i].n_tokens, 2 * TRIAL_BATCH * TRIAL_LENGTH);
        expect_within(a.steps[i].loss, b.steps[i].loss, 1e-4);
        expect_within(a.steps[i].grad_norm, b.steps[i].grad_norm, 1e-3);
    }
}

void key_train_batch_size(void)
{
    struct trial t;
    PLAN(&t, "train_batch_size=8");
    assert_int_equal(t.plan.n_micro, 4);
    assert_int_equal(t.plan.tokens_per_step, 8 * TRIAL_LENGTH);
    PLAN(&t, "train_batch_size=8", "per_device_train_batch_size=");
    assert_int_equal(t.plan.micro_batch, 8);
    REFUSED("train_batch_size", "train_batch_size=7");
}

void key_per_device_eval_batch_size(void)
{
    struct trial t;
    TRAIN(&t, trial_text(), "val_set_size=6", "eval_on_start=true", "per_device_eval_batch_size=3");
    assert_int_equal(t.evals[0].n_batches, 2);
    TRAIN(&t, trial_text(), "val_set_size=6", "eval_on_start=true", "per_device_eval_batch_size=1");
    assert_int_equal(t.evals[0].n_batches, 6);
}

void key_num_train_epochs(void)
{
    struct trial t;
    TRAIN(&t, trial_text(), "max_steps=-1", "num_train_epochs=1.5");
    assert_int_equal(t.n_steps, 15);
    expect_within(t.steps[14].epoch, 1.5, 1e-9);
    TRAIN(&t, trial_text(), "max_steps=-1", "num_train_epochs=3", "gradient_accumulation_steps=2");
    assert_int_equal(t.n_steps, 15);
}

void key_max_steps(void)
{
    struct trial t;
    TRAIN(&t, trial_text(), "max_steps=7");
    assert_int_equal(t.n_steps, 7);
    assert_int_equal(t.steps[0].n_steps, 7);
    TRAIN(&t, trial_text(), "max_steps=25"); /* beyond the first epoch */
    assert_int_equal(t.n_steps, 25);
}

/* A run without end in sight ends when its time is over, and saves. */
void key_max_time(void)
{
    struct trial t;
    double started = now_s();
    TRAIN(&t, "max_steps=1000000000", "max_time=1s");
    assert_true(now_s() - started >= 1.0);
    assert_in_range(t.n_steps, 1, 999999999);
    assert_int_equal(t.n_saves, 1);
    assert_int_equal(t.saved[0], t.n_steps);
}

void key_batch_size(void)
{
    struct trial a, b;
    TRAIN(&a, "per_device_train_batch_size=3");
    TRAIN(&b, "per_device_train_batch_size=", "batch_size=3");
    assert_true(trial_same_losses(&a, &b));
    REFUSED("some tools mean the micro-batch", "per_device_train_batch_size=", "batch_size=4",
            "gradient_accumulation_steps=2");
    REFUSED("keep one of them", "per_device_train_batch_size=2", "batch_size=4");
}
