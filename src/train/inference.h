/* inference.h: a model with its weights in place and programs that extend a sequence.
 *
 * Two programs share one arena: `prefill` takes chunk tokens at a time, `decode` takes one; weights
 * and key/value caches are storage that both see.
 *
 *     struct inference x;
 *     TRY(inference_open(&x, cfg, &options));      the model and the device
 *     TRY_GOTO(inference_plan(&x, &sizes), out);   ERR_FIT when it does not fit
 *     TRY_GOTO(inference_load(&x, folder), out);   arenas and weights
 *     TRY_GOTO(inference_extend(&x, tokens, n, 0, logits), out);
 *     out: inference_close(&x);
 */
#ifndef SNUG_TRAIN_INFERENCE_H
#define SNUG_TRAIN_INFERENCE_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct inference_sizes {
    int64_t chunk;         /* tokens the prefill program takes at a time; 1: there is none */
    int64_t cache_len;     /* tokens a sequence may have */
    int64_t scratch_bytes; /* host memory for the caller, inside the plan */
};

struct inference {
    struct engine *engine; /* `own`, or that of a run that trains */
    struct engine own;
    struct inference_sizes sizes;
    struct stage *prefill, *decode; /* of the engine; prefill is NULL when chunk is 1 */
    void *scratch;                  /* scratch_bytes of them, from inference_load on */

    /* what the engine was asked for */
    struct stage_request stages[2];
    struct reserve reserve;
};

/* On failure there is nothing to close. */
enum status inference_open(struct inference *x, const struct config *cfg,
                           const struct engine_options *o) MUST_CHECK;
enum status inference_plan(struct inference *x, const struct inference_sizes *sizes) MUST_CHECK;
void inference_close(struct inference *x);

/* Beside training: the engine has started, and was asked for a decode stage of these sizes and for
 * the scratch. Again after its programs have changed; there is nothing to close. */
void inference_join(struct inference *x, struct engine *e, const struct inference_sizes *sizes);

/* Host memory that the caller draws tokens in. */
#define INFERENCE_SCRATCH "scratch"

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
