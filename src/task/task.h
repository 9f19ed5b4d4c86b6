/* task.h: what a network is trained for.
 *
 * A task owns what goes into a step (the tensors of a batch, and the data they come from), the
 * graph with its losses, the metrics made of its sums, its FLOPs, and the words in which progress
 * is told. Engine, trainer, evaluator and reports ask the task; none of them knows what a token is.
 * language.h is the task of predicting the next token, preference.h that of preferring one answer
 * to another, samples.h that of networks whose samples are tensors.
 *
 *     struct task t = {.def = &task_language, .model = model};
 *     t.def->describe(&t, &sizes, &batch);             the inputs, by name
 *     t.def->build(&t, &builder, &request, &io);       the graph, with losses by name
 */
#ifndef SNUG_TASK_TASK_H
#define SNUG_TASK_TASK_H

#include <jansson.h>

#include "config/config.h"
#include "data/dataset.h"
#include "model/losses.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What steps and rates are counted in, as each place that shows it spells it. */
struct task_unit {
    const char *one, *many; /* "token", "tokens" */
    const char *rate;       /* "tok/s": progress lines */
    const char *rate_key;   /* "tok_s": metrics.jsonl */
    const char *rate_tag;   /* "tokens_per_second": TensorBoard */
};

/* A number that the sums of an evaluation come to, beside the losses. */
struct task_metric {
    const char *name;
    double (*value)(const struct model_graph *io, const double *sums);
    bool is_logged;   /* in metrics.jsonl and TensorBoard too, not in the report of eval alone */
    bool is_optional; /* not every network of the task has it: NaN is none */
};

/* A metric, or one of several losses, as it came out. */
struct metric_value {
    const char *name;
    double value;
    bool is_logged;
};
enum { MOST_METRIC_VALUES = 24 };

struct task {
    const struct task_def *def;
    const struct model *model; /* borrowed; NULL: the task builds its network by itself */
    bool packed;               /* samples share rows, and batches say where each begins */
    double beta, smoothing;    /* of preferences: preference.c */
};

struct task_data_options {
    const struct config *config;
    const struct task *task;
    const char *model_folder; /* where the model's files are; NULL: nowhere */
    const char *cache_folder; /* for what is made of the data; NULL: with the run */
    bool train, evaluate;     /* which datasets are wanted */
};

/* Where samples come from. `data` is what open gave. */
struct task_data_def {
    /* Nothing is read yet; the options' pointers outlive the data. */
    enum status (*open)(void **data, const struct task_data_options *o);
    void (*close)(void *data); /* also of NULL */
    /* Memory that reading will take, before there are arenas. */
    int64_t (*read_bytes)(void *data);
    /* Opens what is wanted; spare_bytes of host memory are left. */
    enum status (*read)(void *data, int64_t spare_bytes);
    /* The samples to train or evaluate on. */
    enum status (*dataset)(void *data, bool eval, struct dataset *out);
    /* {"tokens": 9000, "hash": "..."}: two runs with equal ones see the same samples. The first key
     * is the unit's name for many. ERR_DATA where nothing in the data is a label. */
    enum status (*identity)(const void *data, json_t **out);
    /* The name of the tokenizer that a checkpoint has to take along; NULL: none. NULL function: the
     * task knows no tokenizers. */
    const char *(*tokenizer)(const void *data);
    /* Of a task with a reference: where the numbers of each sample go, *n of them in all, in the
     * order of the samples; NULL: the dataset is not open. */
    float *(*reference)(void *data, bool eval, int64_t *n);
};

/* What a batch is like. */
struct batch_sizes {
    int64_t rows, length;
    enum dtype weights; /* of the run: inputs that meet weights have it too */
};

/* Sizes are given as rows (samples of a batch) and length (max_seq_length: what a sample has of a
 * unit, for the tasks that cut their samples to a length). */
struct task_def {
    const char *name;
    struct task_unit unit;
    const char *masked; /* how data says that something is no label: "-100" */
    bool has_model;     /* the network is a model of models.def, which the config names */
    /* Losses compare with the network as it was before the run: what that says of every sample is
     * computed once (graph output REFERENCE_OUTPUT, numbers by sample) and is part of the data from
     * then on. */
    bool has_reference;
    bool cuts_to_length; /* samples are cut to max_seq_length, although that is not what is counted
                          */
    const struct task_metric *metrics;
    int n_metrics;
    const struct task_data_def *data;

    /* ERR_CONFIG for a config that the task cannot be done with. */
    enum status (*check)(const struct task *t, const struct config *cfg);
    /* Fills in what the task is told by the config beside its def and model. NULL: nothing. */
    void (*configure)(struct task *t, const struct config *cfg);
    /* The items of a batch, into a batch without any. */
    void (*describe)(const struct task *t, const struct batch_sizes *sizes, struct batch *out);
    /* Whether samples of a batch know of each other, so that rows which do not count would be seen
     * in training: the last samples of an epoch are left out then. NULL: they never do. */
    bool (*needs_full_batches)(const struct task *t);
    /* Its inputs are the items (and rng), its losses are what training minimises. */
    enum status (*build)(const struct task *t, struct builder *b, const struct model_request *r,
                         struct model_graph *out);
    int64_t (*n_blocks)(const struct task *t);              /* of its network */
    int64_t (*units)(const struct task *t, int64_t length); /* of a sample */
    /* How often a unit meets the parameters. NULL: once. */
    int64_t (*meetings)(const struct task *t, int64_t length);
    /* Useful FLOPs of a training step, per unit, which meets n_active parameters. */
    double (*flops)(const struct task *t, int64_t n_active, int64_t length);
};

#define REFERENCE_OUTPUT "reference_logps"

/* Are its samples cut to max_seq_length? */
static inline bool task_has_length(const struct task *t)
{
    return t->def->cuts_to_length || t->def->units(t, 2) != t->def->units(t, 1);
}

#ifdef __cplusplus
}
#endif
#endif
