/* settings.h: what an engine is told, typed; and how a config says it.
 *
 * Here the config's keys become options of the stages below: graphs, decisions, budgets. Nothing
 * further down reads a config.
 */
#ifndef SNUG_ENGINE_SETTINGS_H
#define SNUG_ENGINE_SETTINGS_H

#include "config/config.h"
#include "optim/optimizer.h"
#include "search/search.h"
#include "search/workload.h"
#include "task/task.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is computed: the graph of a stage follows from these, its request and the task. */
struct numerics {
    struct precision precision;
    struct optimizer_options optimizer; /* precision, n_micro and nominal_count aside: graphs.c */
    int64_t loss_chunks;                /* 0: the kernel chooses */
    double label_smoothing, z_loss;     /* of the loss that is trained */
    double embedding_noise;             /* NEFTune's alpha */
    bool unfused;                       /* the graph is not rewritten */
    struct {
        bool on;
        int64_t n_exact;       /* last blocks whose gradients the prediction has right */
    } prediction;              /* of gradients, for a part of the micro-batches of a step */
    const char *deterministic; /* where it was asked for that the same bits come out in every run;
                                * NULL: nowhere */
};

struct settings {
    struct numerics numerics;
    struct decisions decisions;  /* as configured, then as the search chose */
    struct search_bounds bounds; /* what the config has settled */
    struct limits limits;
    uint64_t seed; /* of weights that come from nowhere else */
};

/* A graph that is wanted, and its sizes. */
struct stage_request {
    enum stage_purpose purpose;
    int64_t batch;     /* samples at a time */
    int64_t seq_len;   /* of each, where the task cuts them to a length */
    int64_t n_micro;   /* TRAIN: micro-steps of an optimizer step; MEASURE: 2; else 1 */
    int64_t cache_len; /* PREFILL, DECODE: tokens a sequence may have */
    int64_t full_len;  /* TRAIN: the longest samples of the run, by which gradients are scaled; 0:
                        * these are */
    bool beside_training; /* DECODE: parameters have the formats that training keeps them in */
};

/* ERR_UNSUPPORTED, with what to write instead, when the device lacks what the config asks for. */
enum status settings_from_config(struct settings *s, const struct config *cfg,
                                 const struct device *d) MUST_CHECK;

/* Whether device_memory is more than the card that is planned for has, and all of that is taken
 * instead: on a GPU that is here, a budget may be for another machine. */
bool budget_is_beyond(const struct config *cfg, const struct device *d);

/* The sizes of training or evaluation; ERR_CONFIG when the task cannot be done with them, or the
 * network has too few blocks for gradient_checkpointing. */
enum status request_from_config(struct stage_request *r, enum stage_purpose purpose,
                                const struct config *cfg, const struct task *task) MUST_CHECK;

/* What a step (or a batch to evaluate) has of the unit that the task counts in. */
int64_t request_units(const struct stage_request *r, const struct task *task);

/* The dtypes a config asks for; ERR_UNSUPPORTED, with what to write instead, when the device lacks
 * one. */
enum status precision_from_config(const struct config *cfg, const struct device *d,
                                  struct precision *out) MUST_CHECK;
/* Whether fp16 with loss scaling and f32 gradients stands in for the bf16 that the config asks for:
 * only where the device is planned for and lacks it. */
bool precision_is_replaced(const struct config *cfg, const struct device *d);

#ifdef __cplusplus
}
#endif
#endif
