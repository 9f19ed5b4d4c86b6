/* Keys of evaluations and checkpoints: when there are any, how many, and going on from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "keys/keys.h"
#include "support/trial.h"

/* The text without four windows: eight steps in an epoch. */
#define TWO_EPOCHS \
    trial_text(), "val_set_size=4", "max_steps=-1", "num_train_epochs=2", "learning_rate=0"

/* Steps, ended by 0. */
static void expect_evals(const struct trial *t, const int64_t *steps)
{
    int n = 0;
    for (; n < t->n_evals && steps[n]; n++)
        assert_int_equal(t->evals[n].step, steps[n]);
    assert_int_equal(n, t->n_evals);
    assert_int_equal(steps[n], 0);
}

static void expect_saves(const struct trial *t, const int64_t *steps)
{
    int n = 0;
    for (; n < t->n_saves && steps[n]; n++)
        assert_int_equal(t->saved[n], steps[n]);
    assert_int_equal(n, t->n_saves);
    assert_int_equal(steps[n], 0);
}

#define STEPS(...) ((const int64_t[]){__VA_ARGS__, 0})
#define NO_STEPS   ((const int64_t[]){0})

/* ---- evaluation ------------------------------------------------------------------------------ */

void key_eval_strategy(void)
{
    struct trial t;
    TRAIN(&t, TWO_EPOCHS, "eval_strategy=no");
    expect_evals(&t, NO_STEPS);
    TRAIN(&t, TWO_EPOCHS, "eval_strategy=epoch");
    expect_evals(&t, STEPS(8, 16));
    TRAIN(&t, TWO_EPOCHS, "eval_strategy=steps", "eval_steps=6");
    expect_evals(&t, STEPS(6, 12, 16));
    REFUSED("nothing to evaluate on", "eval_strategy=epoch");
}

void key_eval_steps(void)
{
    struct trial t;
    TRAIN(&t, TWO_EPOCHS, "eval_strategy=steps", "eval_steps=5");
    expect_evals(&t, STEPS(5, 10, 15, 16));
    TRAIN(&t, TWO_EPOCHS, "eval_strategy=steps", "save_steps=7"); /* unset: as often as saving */
    expect_evals(&t, STEPS(7, 14, 16));
}

/* The same batches every time: at a rate of 0 the losses are the same. */
void key_eval_max_batches(void)
{
    struct trial all, one;
    TRAIN(&all, TWO_EPOCHS, "eval_strategy=steps", "eval_steps=4");
    TRAIN(&one, TWO_EPOCHS, "eval_strategy=steps", "eval_steps=4", "eval_max_batches=1");
    assert_int_equal(all.evals[0].n_batches, 2);
    assert_int_equal(one.evals[0].n_batches, 1);
    assert_int_equal(one.n_evals, 4);
    for (int i = 0; i < 4; i++)
        assert_true(one.evals[i].loss == one.evals[0].loss);
    assert_true(all.evals[0].loss != one.evals[0].loss);
}

void key_eval_on_start(void)
{
    struct trial t;
    TRAIN(&t, TWO_EPOCHS, "eval_on_start=true");
    assert_int_equal(t.n_evals, 1);
    assert_int_equal(t.evals[0].step, 0);
    TRAIN(&t, TWO_EPOCHS, "eval_on_start=false");
    expect_evals(&t, NO_STEPS);
}

/* ---- saving ---------------------------------------------------------------------------------- */

void key_save_strategy(void)
{
    struct trial t;
    TRAIN(&t, TWO_EPOCHS, "save_strategy=no");
    expect_saves(&t, NO_STEPS);
    TRAIN(&t, TWO_EPOCHS, "save_strategy=epoch");
    expect_saves(&t, STEPS(8, 16));
    TRAIN(&t, TWO_EPOCHS, "save_strategy=steps", "save_steps=6");
    expect_saves(&t, STEPS(6, 12, 16));
}

void key_save_steps(void)
{
    struct trial t;
    TRAIN(&t, TWO_EPOCHS, "save_strategy=steps", "save_steps=5");
    expect_saves(&t, STEPS(5, 10, 15, 16));
    assert_true(trial_has_file(&t, "checkpoint-5") && trial_has_file(&t, "checkpoint-16"));
}

void key_save_total_limit(void)
{
    struct trial t;
    TRAIN(&t, TWO_EPOCHS, "save_strategy=steps", "save_steps=4", "save_total_limit=2");
    expect_saves(&t, STEPS(4, 8, 12, 16));
    assert_false(trial_has_file(&t, "checkpoint-4") || trial_has_file(&t, "checkpoint-8"));
    assert_true(trial_has_file(&t, "checkpoint-12") && trial_has_file(&t, "checkpoint-16"));
}

/* ---- going on -------------------------------------------------------------------------------- */

/* In a folder of this name under the scratch folder. */
#define RUN_IN(t, name, ...) \
    TRAIN(t, trial_path("output_dir", name), "save_strategy=steps", __VA_ARGS__)

void key_resume_from_checkpoint(void)
{
    struct trial whole, first, rest;
    RUN_IN(&whole, "whole", "max_steps=6");
    RUN_IN(&first, "parts", "max_steps=2");
    RUN_IN(&rest, "parts", "max_steps=6", "save_steps=3", "resume_from_checkpoint=last");
    assert_int_equal(rest.n_steps, 4);
    assert_int_equal(rest.steps[0].step, 3);
    for (int i = 0; i < 4; i++)
        assert_true(rest.steps[i].loss == whole.steps[2 + i].loss);
    /* From one by its name, and from none where there is none. */
    RUN_IN(&rest, "parts", "max_steps=6", "resume_from_checkpoint=checkpoint-3");
    assert_int_equal(rest.n_steps, 3);
    RUN_IN(&rest, "fresh", "max_steps=6", "resume_from_checkpoint=auto");
    assert_int_equal(rest.n_steps, 6);
    REFUSED("checkpoint", trial_path("output_dir", "empty"), "resume_from_checkpoint=last");
}

void key_overwrite_output_dir(void)
{
    struct trial t;
    RUN_IN(&t, "taken", "max_steps=5");
    REFUSED("of another run", trial_path("output_dir", "taken"), "save_strategy=steps");
    RUN_IN(&t, "taken", "max_steps=4", "overwrite_output_dir=true");
    assert_false(trial_has_file(&t, "checkpoint-5"));
    assert_true(trial_has_file(&t, "checkpoint-4"));
}

void key_allow_resume_changes(void)
{
    struct trial t;
    RUN_IN(&t, "changed", "max_steps=2");
    REFUSED("allow_resume_changes", trial_path("output_dir", "changed"),
            "resume_from_checkpoint=last", "weight_decay=0.5");
    RUN_IN(&t, "changed", "max_steps=3", "resume_from_checkpoint=last", "weight_decay=0.5",
           "allow_resume_changes=true");
    assert_int_equal(t.n_steps, 1);
    assert_int_equal(t.steps[0].step, 3);
}

/* ---- the best -------------------------------------------------------------------------------- */

/* Losses fall: taken the other way round, the first evaluation is the best. */
#define WATCHED                                                                              \
    trial_text(), "val_set_size=4", "eval_strategy=steps", "eval_steps=2", "save_steps=100", \
        "shuffle=false"

static double saved_loss(const char *folder, const char *load_best)
{
    struct snug_evaluation e;
    trial_evaluate_saved(
        &e, OVERRIDES(WATCHED, trial_path("output_dir", folder), "save_strategy=steps", load_best));
    return e.loss;
}

void key_load_best_model_at_end(void)
{
    struct trial t;
    RUN_IN(&t, "best", WATCHED, "max_steps=6", "load_best_model_at_end=true",
           "greater_is_better=true", "save_total_limit=1");
    assert_true(t.evals[0].loss > t.evals[1].loss && t.evals[1].loss > t.evals[2].loss);
    expect_saves(&t, STEPS(2, 6));
    assert_true(trial_has_file(&t, "checkpoint-2")); /* though only one is to be kept */
    assert_true(saved_loss("best", "load_best_model_at_end=true") == t.evals[0].loss);
    assert_true(saved_loss("best", "load_best_model_at_end=false") == t.evals[2].loss);
    REFUSED("goes by evaluations", "load_best_model_at_end=true", "save_strategy=steps");
    REFUSED("from a checkpoint", WATCHED, "load_best_model_at_end=true");
}

/* Weights as they are in memory after the run: those of the best evaluation. */
void key_metric_for_best_model(void)
{
    struct trial t;
    RUN_IN(&t, "metric", WATCHED, "max_steps=6", "load_best_model_at_end=true",
           "metric_for_best_model=perplexity");
    expect_saves(&t, STEPS(2, 4, 6)); /* it gets better each time */
    REFUSED("evaluations have no 'accuracy', but eval_loss, eval_perplexity", WATCHED,
            "save_strategy=steps", "load_best_model_at_end=true",
            "metric_for_best_model=eval_accuracy");
}

void key_greater_is_better(void)
{
    struct trial t;
    RUN_IN(&t, "greater", WATCHED, "max_steps=6", "load_best_model_at_end=true",
           "greater_is_better=true", "metric_for_best_model=eval_perplexity");
    expect_saves(&t, STEPS(2, 6));
}

/* A run that goes on from a checkpoint counts on from there. */
void key_early_stopping_patience(void)
{
    struct trial t;
    TRAIN(&t, WATCHED, "max_steps=20", "learning_rate=0", "early_stopping_patience=3");
    expect_evals(&t, STEPS(2, 4, 6, 8)); /* the first is the best, three are no better */
    assert_int_equal(t.n_steps, 8);
    RUN_IN(&t, "patient", WATCHED, "max_steps=6", "learning_rate=0", "early_stopping_patience=3");
    RUN_IN(&t, "patient", WATCHED, "max_steps=20", "learning_rate=0", "early_stopping_patience=3",
           "resume_from_checkpoint=last");
    expect_evals(&t, STEPS(8));
    assert_int_equal(t.n_steps, 2);
    REFUSED("goes by evaluations", "early_stopping_patience=3");
}

void key_early_stopping_threshold(void)
{
    struct trial t;
    TRAIN(&t, WATCHED, "max_steps=20", "early_stopping_patience=2");
    assert_int_equal(t.n_steps, 20); /* better each time, */
    TRAIN(&t, WATCHED, "max_steps=20", "early_stopping_patience=2", "early_stopping_threshold=9");
    assert_int_equal(t.n_steps, 6); /* but not by that much */
}

void key_save_only_model(void)
{
    struct trial t;
    RUN_IN(&t, "weights", "max_steps=2", "save_only_model=true");
    assert_true(trial_has_file(&t, "checkpoint-2/model.safetensors"));
    assert_false(trial_has_file(&t, "checkpoint-2/optimizer.safetensors"));
    REFUSED("save_only_model", trial_path("output_dir", "weights"), "save_strategy=steps",
            "max_steps=3", "resume_from_checkpoint=last");
    RUN_IN(&t, "full", "max_steps=2");
    assert_true(trial_has_file(&t, "checkpoint-2/optimizer.safetensors"));
}
