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

/* ---- of single schedules --------------------------------------------------------------------- */

/* All rates are compared with those of transformers in tests/train/test_rate.c; here: what is
 * written reaches the steps, and nothing else takes the key. */

void key_lr_num_cycles(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=cosine_with_restarts", "lr_num_cycles=2");
    for (int i = 0; i < N_STEPS; i++)
        expect_within(rate(&t, i), PEAK * cosine_share(i % 4, 4), 1e-12);
    RATES(&t, "lr_scheduler_type=cosine", "lr_scheduler_kwargs={num_cycles: 1}");
    expect_within(rate(&t, 4), 0, 0);
    REFUSED("belongs to the cosine", "lr_scheduler_type=linear", "lr_num_cycles=2");
}

void key_lr_end(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=polynomial", "lr_end=0.05");
    for (int i = 0; i < N_STEPS; i++)
        expect_within(rate(&t, i), 0.05 + 0.2 * (N_STEPS - i) / N_STEPS, 1e-12);
    REFUSED("must be below learning_rate", "lr_scheduler_type=polynomial", "lr_end=1");
}

void key_lr_power(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=polynomial", "lr_end=0", "lr_power=2");
    expect_within(rate(&t, 4), PEAK / 4, 1e-12);
    REFUSED("belongs to polynomial", "lr_scheduler_type=cosine", "lr_power=2");
}

void key_lr_timescale(void)
{
    struct trial t;
    RATES(&t, "lr_scheduler_type=inverse_sqrt", "lr_timescale=2");
    expect_within(rate(&t, 0), PEAK, 1e-12);
    expect_within(rate(&t, 6), PEAK / 2, 1e-12);
    REFUSED("belongs to inverse_sqrt", "lr_scheduler_type=linear", "lr_timescale=2");
}

#define WSD(t, ...) RATES(t, "lr_scheduler_type=warmup_stable_decay", __VA_ARGS__)

void key_lr_decay_steps(void)
{
    struct trial t;
    WSD(&t, "lr_decay_steps=4");
    expect_within(rate(&t, 4), PEAK, 0);
    expect_within(rate(&t, 6), PEAK / 2, 1e-12);
    REFUSED("needs lr_decay_steps", "lr_scheduler_type=wsd");
}

void key_lr_stable_steps(void)
{
    struct trial t;
    WSD(&t, "lr_decay_steps=4", "lr_stable_steps=2");
    expect_within(rate(&t, 2), PEAK, 0);
    expect_within(rate(&t, 4), PEAK / 2, 1e-12);
    expect_within(rate(&t, 6), 0, 0);
}

void key_lr_warmup_type(void)
{
    struct trial t;
    WSD(&t, "lr_decay_steps=2", "warmup_steps=4", "lr_warmup_type=cosine");
    expect_within(rate(&t, 1), PEAK * (1 - cosine_share(1, 4)), 1e-12);
}

void key_lr_decay_type(void)
{
    struct trial t;
    WSD(&t, "lr_decay_steps=4", "lr_decay_type=1-sqrt");
    expect_within(rate(&t, 5), PEAK / 2, 1e-12);
}

/* Only evaluations that are a tenth better count, of which there is none after the first: after
 * so many the rate falls, and is that of the next step. */
#define PLATEAU(t, ...)                                                                    \
    RATES(t, trial_text(), "val_set_size=4", "optim=sgd", "learning_rate=1e-4",            \
          "lr_scheduler_type=reduce_lr_on_plateau", "eval_strategy=steps", "eval_steps=1", \
          __VA_ARGS__)

static void expect_rates(const struct trial *t, const double *due)
{
    for (int i = 0; i < N_STEPS; i++)
        expect_within(rate(t, i), 1e-4 * due[i], 1e-12);
}

void key_lr_plateau_patience(void)
{
    struct trial t;
    PLATEAU(&t, "lr_plateau_patience=1", "lr_plateau_threshold=0.1");
    expect_rates(&t, (const double[]){1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001});
    REFUSED("goes by evaluations", "lr_scheduler_type=reduce_lr_on_plateau");
    /* A run that goes on from a checkpoint goes on with what was counted. */
    PLATEAU(&t, "lr_plateau_patience=1", "lr_plateau_threshold=0.1", "save_strategy=steps",
            trial_path("output_dir", "plateau"), "max_steps=4");
    PLATEAU(&t, "lr_plateau_patience=1", "lr_plateau_threshold=0.1", "save_strategy=steps",
            trial_path("output_dir", "plateau"), "resume_from_checkpoint=last");
    assert_int_equal(t.n_steps, 4);
    expect_within(t.steps[0].learning_rate, 1e-5, 1e-12);
    expect_within(t.steps[1].learning_rate, 1e-6, 1e-12);
    expect_within(t.steps[3].learning_rate, 1e-7, 1e-12);
}

void key_lr_plateau_factor(void)
{
    struct trial t;
    PLATEAU(&t, "lr_plateau_patience=2", "lr_plateau_threshold=0.1",
            "lr_scheduler_kwargs={factor: 0.5}");
    expect_rates(&t, (const double[]){1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25});
}

/* A threshold of 0: it gets better all the time. */
void key_lr_plateau_threshold(void)
{
    struct trial t;
    PLATEAU(&t, "lr_plateau_patience=0", "lr_plateau_threshold=0");
    expect_rates(&t, (const double[]){1, 1, 1, 1, 1, 1, 1, 1});
}

void key_lr_plateau_cooldown(void)
{
    struct trial t;
    PLATEAU(&t, "lr_plateau_patience=0", "lr_plateau_threshold=0.1", "lr_plateau_cooldown=2",
            "lr_plateau_factor=0.5");
    expect_rates(&t, (const double[]){1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25});
}
