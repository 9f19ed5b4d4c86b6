/* inference.h: a model with its weights in place and programs that extend a sequence.
 *
 * Two programs share one arena: `prefill` takes chunk tokens at a time, `decode` takes one; weights
 * and key/value caches are storage that both see. They are planned, checked and run exactly as
 * training programs are, inside device_memory, on the device the config names.
 *
 *     struct inference x;
 *     TRY(inference_open(&x, cfg, &options));      plans; ERR_FIT when it does not fit
 *     TRY_GOTO(inference_load(&x, folder), out);   arenas and weights
 *     TRY_GOTO(inference_extend(&x, tokens, n, 0, logits), out);
 *     out: inference_close(&x);
 */
#ifndef SNUG_TRAIN_INFERENCE_H
#define SNUG_TRAIN_INFERENCE_H

#include "config/config.h"
#include "device/device.h"
#include "io/stage.h"
#include "model/model.h"
#include "program/program.h"
#include "run/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct inference_options {
    const char *hub_folder;   /* Hugging Face cache; NULL: none */
    const char *cache_folder; /* what is measured about a device is kept here; NULL: nowhere */
    int n_threads;            /* on the CPU, where the config does not say; 0: all processors */
    int64_t chunk;            /* tokens the prefill program takes at a time; 1: there is none */
    int64_t cache_len;        /* tokens a sequence may have */
    enum dtype dtype;         /* of weights and activations; DTYPE_NONE: as the config says */
    int64_t scratch_bytes;    /* host memory for the caller, inside the plan */
};

/* One graph, its plan and its program. */
struct inference_stage {
    struct graph *graph;
    struct model_graph io;
    struct plan plan;
    struct program *program;
    int64_t n_tokens;
    int handle;
};

struct inference {
    const struct config *config; /* borrowed */
    struct inference_options options;
    enum dtype dtype;
    char *model_folder; /* of the config's model; NULL: from scratch */
    struct model *model;
    struct device device;
    struct inference_stage prefill, decode; /* prefill.graph is NULL when chunk is 1 */
    struct storage storage;
    int64_t n_bytes[TIER_COUNT]; /* arenas, predicted */
    int64_t context_bytes;       /* the process outside its arenas */
    struct executor *executor;
    struct tensor *param_tensors; /* in the order of decode.io.params; written through `stage` */
    struct tensor_stage staging;
    const struct tensor_stage *stage; /* from inference_load on: `staging`, or the host's */
    void *scratch;                    /* scratch_bytes of them */
};

/* On failure there is nothing to close. */
enum status inference_open(struct inference *x, const struct config *cfg,
                           const struct inference_options *o) MUST_CHECK;
void inference_close(struct inference *x);

/* Allocates the arenas; weights from a model folder, or from the config's seed when NULL. */
enum status inference_load(struct inference *x, const char *folder) MUST_CHECK;

/* Puts tokens[0..n) at positions first, first + 1, ... of the sequence; *logits = [vocab_size] of
 * the last of them in the weights' dtype, valid until the next call. */
enum status inference_extend(struct inference *x, const int32_t *tokens, int64_t n, int64_t first,
                             struct tensor *logits) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
