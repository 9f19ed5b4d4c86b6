/* Keys of predicted gradients: whether there are any, of how much of a step, how they are made, and
 * when they are measured and used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

#define PLAIN "gradient_accumulation_steps=4", "max_steps=8"
#define PREDICTED                                                                       \
    PLAIN, "predicted_gradients=residual", "probe_batches=4", "control_threshold=1e30", \
        "control_steps=4"

static struct snug_control run(struct trial *t, const char *const *keys)
{
    struct snug_train_result r;
    struct snug_run *run = trial_train_open(t, keys);
    snug_run_result(run, &r);
    struct snug_control control = r.control;
    trial_close(run);
    return control;
}

#define RUN(t, ...) run(t, OVERRIDES(__VA_ARGS__))

void key_predicted_gradients(void)
{
    struct trial plain, t;
    assert_false(RUN(&plain, PLAIN).has_control);
    struct snug_control c = RUN(&t, PREDICTED);
    assert_true(c.has_control && c.n_predicted == 8 && c.n_measured == 2 && c.n_paid == 2);
    assert_true(c.cost_ratio < 1 && c.variance_ratio > 1 && c.share > 0);
    assert_false(trial_same_losses(&plain, &t));
    REFUSED("which is all of them", PREDICTED, "gradient_accumulation_steps=1");
}

/* More true gradients: they cost more and leave less to chance. */
void key_true_micro_batches(void)
{
    struct trial t;
    struct snug_control one = RUN(&t, PREDICTED),
                        three = RUN(&t, PREDICTED, "true_micro_batches=3");
    expect_within(three.cost_ratio - one.cost_ratio, 0.5, 1e-9);
    assert_true(three.variance_ratio < one.variance_ratio);
    REFUSED("which is all of them", PREDICTED, "true_micro_batches=4");
    REFUSED("true_micro_batches is of predicted gradients", PLAIN, "true_micro_batches=2");
}

/* Blocks whose backward pass is run as it is: it costs more, and more is right. */
void key_exact_blocks(void)
{
    struct trial t;
    struct snug_control none = RUN(&t, PREDICTED), one = RUN(&t, PREDICTED, "exact_blocks=1");
    assert_true(one.cost_ratio > none.cost_ratio);
    assert_true(one.variance_ratio < none.variance_ratio);
    REFUSED("exact_blocks is 2 of 2 blocks", PREDICTED, "exact_blocks=2");
}

void key_control_steps(void)
{
    struct trial t;
    assert_int_equal(RUN(&t, PREDICTED, "control_steps=2").n_measured, 4);
    /* after 0, 1, 3 and 7 steps */
    assert_int_equal(RUN(&t, PREDICTED, "control_steps=1", "control_threshold=0").n_measured, 4);
}

/* What is never good enough is plain training, to the bit. */
void key_control_threshold(void)
{
    struct trial plain, t;
    TRAIN(&plain, PLAIN);
    struct snug_control c = RUN(&t, PREDICTED, "control_threshold=0");
    assert_true(c.n_predicted == 0 && c.n_paid == 0 && c.n_measured > 0);
    assert_true(trial_same_losses(&plain, &t));
    REFUSED("control_threshold is of predicted gradients", PLAIN, "control_threshold=2");
}
