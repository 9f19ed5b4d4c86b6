/* pipeline.h: from a config to checked programs.
 *
 *     config -> model -> rewrite -> autodiff -> precision -> optimizer -> rewrite
 *            -> plan -> program -> check
 *
 * pipeline_build() reads as that list. What comes out says, before anything runs, what every byte
 * is for and how long a step takes; train/trainer.h then runs it.
 */
#ifndef SNUG_TRAIN_PIPELINE_H
#define SNUG_TRAIN_PIPELINE_H

#include "config/config.h"
#include "device/device.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "program/predict.h"
#include "rewrite/rewrite.h"
#include "train/budget.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pipeline_options {
    bool train, evaluate;       /* which programs are wanted */
    int64_t ring_bytes;         /* of the training data's prefetch ring, in the host tier */
    int64_t eval_ring_bytes;    /* of the evaluation data's */
    int64_t result_bytes;       /* held beside the arenas for what a run gives */
    int64_t data_bytes;         /* held while data is read, before the arenas are */
    struct kernel_times *times; /* kernels are timed through this; NULL: times go by rates */
};

/* A graph with the plan and the program made from it. */
struct stage {
    struct graph *graph;
    struct model_graph io;
    struct plan plan;
    struct program *program;      /* NULL: not wanted */
    struct prediction prediction; /* of the train program */
};

/* Predictions, complete before the first step. */
struct forecast {
    int64_t n_params;
    int64_t arena_bytes, host_bytes, disk_bytes; /* arenas, to the byte */
    int64_t context_bytes; /* of the device's memory: the process outside its arenas */
    int64_t beside_bytes;  /* of the host's memory: likewise; on the CPU the context */
    int64_t data_bytes;    /* of the host's memory, on top, while data is read */
    int64_t before_bytes;  /* of the host's memory: the most that planning took, less the arena */
    int64_t process_bytes; /* the most that the system will show on the device */
    double step_s;
    int n_calls, n_by_rate; /* kernels a step calls, and how many of them were not timed */
    double step_flops;      /* useful ones: recompute not counted */
    int64_t breakdown[MEMORY_CLASS_COUNT]; /* device tier, at the fullest instant */
    int64_t fragmentation;                 /* arena - what is alive at that instant */
    bool fits;
    enum tier binding; /* the tier over its budget, or the fullest one */
    struct budget budget;
};

struct pipeline {
    const struct config *config; /* borrowed */
    const struct model *model;   /* borrowed */
    struct device *device;       /* borrowed */
    struct precision precision;
    struct stage train, eval;
    struct storage storage;
    int64_t n_bytes[TIER_COUNT]; /* arenas: the largest over the programs */
    const struct storage_entry *ring, *eval_ring;
    struct forecast forecast;
};

/* How step_s was made, as reports say it: "measured kernels" or "rates". */
const char *forecast_source(const struct forecast *f);

/* Builds, plans, emits and checks; a plan over budget is not an error here: forecast.fits says. */
enum status pipeline_build(struct pipeline *p, const struct config *cfg, const struct model *model,
                           struct device *device, const struct pipeline_options *o) MUST_CHECK;
void pipeline_release(struct pipeline *p);

/* The last stage, in forecast.c: fills p->forecast from the placed programs; times kernels where
 * the device can and o->times is given. */
enum status pipeline_forecast(struct pipeline *p, const struct pipeline_options *o) MUST_CHECK;

/* What counts against a tier's budget: its arena and what the process holds beside it; on the CPU
 * that is host memory, and device_memory bounds the arena alone. */
int64_t pipeline_needs(const struct pipeline *p, enum tier t);

/* ERR_FIT with the binding constraint in bytes and the nearest change that would fit (other
 * settings are planned to find it), or OK when the plan fits. */
enum status pipeline_require_fit(const struct pipeline *p,
                                 const struct pipeline_options *o) MUST_CHECK;

/* ERR_FIT when the device or the host has too little free memory now, whatever the budget says: how
 * much there is, who holds the rest, and the nearest change that would fit. */
enum status pipeline_require_room(const struct pipeline *p,
                                  const struct pipeline_options *o) MUST_CHECK;

/* The dtypes a config asks for; ERR_UNSUPPORTED, with what to write instead, when the device lacks
 * one. */
enum status precision_from_config(const struct config *cfg, const struct device *d,
                                  struct precision *out) MUST_CHECK;

/* The rewriting a config asks for (compile: none has none). */
enum status fuse_ops(const struct config *cfg, struct graph *g,
                     enum rewrite_stage stage) MUST_CHECK;

/* The name of the input that seeds the backward pass: 1 / tokens of a step. */
#define LOSS_SEED "loss_seed"

#ifdef __cplusplus
}
#endif
#endif
