/* Keys of the learning rate: what it is in every step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

enum { N_STEPS = 8 };
#define PEAK 0.25

static double cosine_share(int i, int n)
{
    return 0.5 * (1.0 + cos(3.14159265358979323846 * i / n));
}

#define RATES(t, ...) TRAIN(t, "max_steps=8", "learning_rate=0.25", __VA_ARGS__)

static double rate(const struct trial *t, int i)
{
    assert_int_equal(t->n_steps, N_STEPS);
    return t->steps[i].learning_rate;
}

/* Rates that are told are those of the updates: at 0 nothing is learnt. */
void key_learning_rate(void)
{
    struct trial t, u;
    TRAIN(&t, trial_text(), "learning_rate=0.25", "shuffle=false", "max_steps=11");
    TRAIN(&u, trial_text(), "learning_rate=0", "shuffle=false", "max_steps=11");
    assert_true(t.steps[0].learning_rate == PEAK && u.steps[0].learning_rate == 0);
    assert_true(u.steps[10].loss == u.steps[0].loss); /* the first batch again */
    assert_true(t.steps[10].loss < t.steps[0].loss - 0.1);
}

void key_lr_scheduler_type(void)
{
    struct trial linear, cosine, constant;
    RATES(&linear, "lr_scheduler_type=linear");
    RATES(&cosine, "lr_scheduler_type=cosine");
    RATES(&constant, "lr_scheduler_type=constant");
    for (int i = 0; i < N_STEPS; i++) {
        expect_within(rate(&linear, i), PEAK * (N_STEPS - i) / N_STEPS, 1e-12);
        expect_within(rate(&cosine, i), PEAK * cosine_share(i, N_STEPS), 1e-12);
        expect_within(rate(&constant, i), PEAK, 0);
    }
    RATES(&constant, "lr_scheduler_type=constant_with_warmup", "warmup_steps=2");
    expect_within(rate(&constant, 1), PEAK / 2, 1e-12);
    expect_within(rate(&constant, N_STEPS - 1), PEAK, 0);
}

static void expect_cosine_to(const struct trial *t, double floor)
{
    for (int i = 0; i < N_STEPS; i++)
        expect_within(rate(t, i), floor + (PEAK - floor) * cosine_share(i, N_STEPS), 1e-12);
}

void key_min_lr(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=cosine_with_min_lr", "min_lr=0.1");
    expect_cosine_to(&t, 0.1);
    RATES(&t, "lr_scheduler_type=cosine", "min_lr=0.2");
    expect_cosine_to(&t, 0.2);
    REFUSED("min_lr", "lr_scheduler_type=linear", "min_lr=0.1");
}

void key_cosine_min_lr_ratio(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=cosine", "cosine_min_lr_ratio=0.5");
    expect_cosine_to(&t, 0.5 * PEAK);
}

/* Up from 0 in four steps, then down in four. */
static void expect_warm_up(const struct trial *t)
{
    for (int i = 0; i < 4; i++) {
        expect_within(rate(t, i), PEAK * i / 4, 1e-12);
        expect_within(rate(t, 4 + i), PEAK * (4 - i) / 4, 1e-12);
    }
}

void key_warmup_steps(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=linear", "warmup_steps=4");
    expect_warm_up(&t);
    RATES(&t, "lr_scheduler_type=linear", "warmup_steps=0.5"); /* of all steps */
    expect_warm_up(&t);
}

void key_warmup_ratio(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=linear", "warmup_ratio=0.5");
    expect_warm_up(&t);
}
