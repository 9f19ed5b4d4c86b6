/* session.h: what a run holds open: an engine, and the data that goes through it.
 *
 *     session_open    model and device; programs planned and checked; nothing large allocated
 *     session_data    tokenizer, sources, loaders
 *     session_start   arenas and weights: from here on nothing is allocated per step
 *     session_close
 *
 * `snug plan` needs only the first; training and evaluation need all three.
 */
#ifndef SNUG_TRAIN_SESSION_H
#define SNUG_TRAIN_SESSION_H

#include "data/loader.h"
#include "data/tokenizer.h"
#include "data/windows.h"
#include "engine/engine.h"
#include "train/feed.h"

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
    struct engine engine;
    struct stage *train, *eval; /* of the engine; NULL: not wanted */

    struct tokenizer *tokenizer;         /* NULL when the data needs none */
    struct source *source, *eval_source; /* eval_source: NULL when split off the training data */
    struct windows *windows, *eval_windows;
    struct loader *loader, *eval_loader;

    struct feed feed, eval_feed; /* batches into the programs */

    /* what the engine was asked for */
    struct stage_request stages[2];
    struct reserve rings[2];
};

enum status session_open(struct session *s, const struct config *cfg,
                         const struct session_options *o) MUST_CHECK;
enum status session_data(struct session *s) MUST_CHECK;
/* With the weights of the config's model, or those of its seed. */
enum status session_start(struct session *s) MUST_CHECK;
void session_close(struct session *s);

/* Where the tokenizer knows no EOS, the model's is taken. */
enum status session_open_tokenizer(const struct config *cfg, const struct model *model,
                                   const char *model_folder, struct tokenizer **out) MUST_CHECK;
/* Says what documents begin and end with. */
void session_tell_documents(const struct tokenizer *t);

/* Starts reading ahead into the engine's memory; ends with loader_stop. */
enum status session_start_loader(struct session *s, bool eval) MUST_CHECK;

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
