/* training.h: a training step built stage by stage, with the plan in the test's hands, and run.
 * Everything fails the test instead of returning an error. */
#ifndef SNUG_TESTS_TRAINING_H
#define SNUG_TESTS_TRAINING_H

#include "model/model.h"
#include "optim/optimizer.h"
#include "plan/plan.h"
#include "program/program.h"
#include "run/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct training_options {
    const char *golden;     /* a folder under tests/golden; or */
    const char *config;     /* a config.json as text */
    int64_t batch, seq_len; /* of a micro-step */
    int64_t n_micro;        /* 0 means 1 */
    bool bf16;
    const struct precision *precision; /* NULL: as bf16 says */
    int64_t seed;                      /* of rounding by chance; 0: to nearest */
    struct loss_scaling scaling;
    double lr;                   /* 0 means 3e-3 */
    double max_grad_norm;        /* 0: no clipping, so that updates run early */
    bool one_batch;              /* the same tokens in every step: something to learn */
    const struct device *device; /* NULL: the CPU, opened once for the test program */
};

struct training {
    struct training_options options;
    struct model *model;
    struct model_graph io;
    struct precision precision;
    struct device device; /* a copy; the test program closes what it opened */
    struct graph *graph;
    struct plan plan;
    struct storage storage;
    struct program *program;
    struct executor *executor; /* NULL until training_start */
    int handle;
};

/* Model, autodiff, precision, optimizer, each rewritten as in training; the plan keeps everything.
 */
void training_init(struct training *t, const struct training_options *o);
/* Emits and places what t->plan says. */
void training_emit(struct training *t);
/* Allocates arenas, loads (and so checks) the program, initialises weights and states. */
void training_start(struct training *t);
/* One optimizer step on synthetic tokens that depend on the step alone. */
void training_step(struct training *t, int step);
float training_output(const struct training *t, const char *name);
void training_release(struct training *t);

/* Fails unless every tier was used up to the predicted byte. */
void training_expect_prediction(const struct training *t);

/* All bytes that outlive a step (every storage entry, by name), folded into one number. */
uint64_t training_digest(const struct training *t);

#ifdef __cplusplus
}
#endif
#endif
