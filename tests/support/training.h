/* training.h: a training step with the plan in the test's hands: an engine taken step by step.
 * Everything fails the test instead of returning an error. */
#ifndef SNUG_TESTS_TRAINING_H
#define SNUG_TESTS_TRAINING_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct training_options {
    const char *golden;     /* a folder under tests/golden; or */
    const char *config;     /* a config.json as text */
    int64_t batch, seq_len; /* of a micro-step */
    int64_t n_micro;        /* 0 means 1 */
    int group;              /* micro-steps that run together; 0 means 1 */
    bool alone;             /* they are planned so, but run one at a time */
    bool bf16;
    const struct precision *precision; /* NULL: as bf16 says */
    int64_t seed;                      /* of rounding by chance; 0: to nearest */
    struct loss_scaling scaling;
    const struct optimizer_options *optimizer; /* NULL: AdamW; otherwise all but its precision */
    double lr;                                 /* 0 means 3e-3 */
    double max_grad_norm;                      /* 0: no clipping, so that updates run early */
    bool one_batch;              /* the same tokens in every step: something to learn */
    const struct device *device; /* NULL: the CPU, opened once for the test program */
};

struct training {
    struct training_options options;
    struct model *model;
    struct device device; /* a copy; the test program closes what it opened */
    struct stage_request request;
    struct engine engine;
    struct stage *stage; /* of the engine, the only one: graph, plan, program */
    int pending;         /* number of the step whose updates are still to come; 0: none */
};

/* The graph; the plan keeps everything. */
void training_init(struct training *t, const struct training_options *o);
/* Emits and places what t->stage->plan says. */
/* Weights, masters, states and gradients are at home on the host; before training_emit. */
void training_go_away(struct training *t);
void training_emit(struct training *t);
/* Allocates arenas, loads (and so checks) the program, initialises weights and states. */
void training_start(struct training *t);
/* Gives the arenas back; training_start may follow. */
void training_stop(struct training *t);
/* One optimizer step on synthetic tokens that depend on the step alone. */
void training_step(struct training *t, int step);
/* Runs updates that the last step has deferred. */
void training_finish(struct training *t);
float training_output(const struct training *t, const char *name);
void training_release(struct training *t);

/* The storage of that name as the host sees it; fails where there is none. */
void *training_storage(const struct training *t, const char *name);

/* Fails unless every tier was used up to the predicted byte. */
void training_expect_prediction(const struct training *t);

/* All bytes that outlive a step (every storage entry, by name), folded into one number, when no
 * update is pending any more. */
uint64_t training_digest(struct training *t);

#ifdef __cplusplus
}
#endif
#endif
