/* Keys of the batch and of the length of a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/machine.h"
#include "keys/keys.h"
#include "support/trial.h"

void key_per_device_train_batch_size(void)
{
    struct trial t;
    TRAIN(&t, "per_device_train_batch_size=5");
    assert_int_equal(t.plan.micro_batch, 5);
    assert_int_equal(t.steps[0].n_tokens, 5 * TRIAL_LENGTH);
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
