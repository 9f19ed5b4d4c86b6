/* session.h: everything a run holds open: model, data, device, programs, memory.
 *
 *     session_open    model and device; programs planned and checked; nothing large allocated
 *     session_data    tokenizer, sources, loaders
 *     session_start   arenas, weights, prefetch: from here on nothing is allocated per step
 *     session_close
 *
 * `snug plan` needs only the first; training and evaluation need all three.
 */
#ifndef SNUG_TRAIN_SESSION_H
#define SNUG_TRAIN_SESSION_H

#include "data/loader.h"
#include "data/source.h"
#include "data/tokenizer.h"
#include "io/stage.h"
#include "run/executor.h"
#include "train/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct session_options {
    bool train, evaluate;
    const char *hub_folder;   /* Hugging Face cache for names such as ORG/NAME; NULL: none */
    const char *cache_folder; /* what is measured about a device is kept here; NULL: nowhere */
    int n_threads;            /* on the CPU, where the config does not say; 0: all processors */
    bool untimed;             /* the forecast goes by rates: no kernel is timed */
};

struct session {
    const struct config *config; /* borrowed */
    struct session_options options;
    char *model_folder; /* HF folder the weights come from; NULL: from scratch */
    struct model *model;
    struct device device;
    struct kernel_times *times; /* NULL: the device does not time kernels */
    struct pipeline_options pipeline_options;
    struct pipeline pipeline;

    struct tokenizer *tokenizer;         /* NULL when the data needs none */
    struct source *source, *eval_source; /* eval_source: NULL when split off the training data */
    struct loader *loader, *eval_loader;

    struct executor *executor;
    int train_program, eval_program;  /* handles; -1: none */
    const struct model_param *params; /* of the graph that is trained or evaluated */
    int n_params;
    struct tensor *param_tensors; /* in the order of params; read and written through `stage` */
    struct tensor_stage staging;
    const struct tensor_stage *stage; /* from session_start on: `staging`, or the host's */
};

enum status session_open(struct session *s, const struct config *cfg,
                         const struct session_options *o) MUST_CHECK;
/* Refuses a plan that does not fit (ERR_FIT), with what would. */
enum status session_require_fit(const struct session *s) MUST_CHECK;
/* Refuses what the device has no free memory for now (ERR_FIT), with who holds the rest. */
enum status session_require_room(const struct session *s) MUST_CHECK;
enum status session_data(struct session *s) MUST_CHECK;
/* Allocates the arenas, loads programs and weights (or initialises them from the seed). */
enum status session_start(struct session *s) MUST_CHECK;
void session_close(struct session *s);

/* Model from config alone (inline keys or an HF folder with inline keys on top). *folder is where
 * its weights are, or NULL; freed by the caller. */
enum status session_open_model(const struct config *cfg, const char *hub_folder,
                               struct model **model, char **folder) MUST_CHECK;
/* Where the tokenizer knows no EOS, the model's is taken. */
enum status session_open_tokenizer(const struct config *cfg, const struct model *model,
                                   const char *model_folder, struct tokenizer **out) MUST_CHECK;
/* Says what documents begin and end with. */
void session_tell_documents(const struct tokenizer *t);

/* session_data.c: how batches are cut; and the memory that reading the data takes, for which a
 * tokenizer that is needed is opened. */
struct loader_options session_loader_options(const struct session *s, bool eval);
int64_t session_data_bytes(struct session *s);

/* Mean loss over the evaluation data (at most max_batches batches; 0: all). */
struct evaluation {
    double loss;
    int64_t n_tokens, n_batches;
    double seconds;
};
enum status session_evaluate(struct session *s, int64_t max_batches,
                             struct evaluation *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
