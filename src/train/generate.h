/* generate.h: text from a model: prompt in, tokens out one at a time.
 *
 *     TRY(generator_open(&g, cfg, &options));
 *     TRY_GOTO(generator_run(g, on_text, user, stop, &result), out);
 *     out: generator_close(g);
 *
 * The text that is handed on consists of whole UTF-8 characters: a character spread over several
 * tokens waits for its last byte; bytes that are no UTF-8 become U+FFFD.
 */
#ifndef SNUG_TRAIN_GENERATE_H
#define SNUG_TRAIN_GENERATE_H

#include <signal.h>

#include "data/tokenizer.h"
#include "train/inference.h"
#include "train/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PREFILL_CHUNK = 64 }; /* tokens of the prompt that go through the model at once */

struct generate_options {
    const char *cache_folder; /* what is measured about a device is kept here; NULL: nowhere */
    int n_threads;            /* on the CPU, where the config does not say; 0: all processors */
    const char *hub_folder;   /* Hugging Face cache; NULL: none */
    const char *checkpoint;   /* see weights_origin.h */
    const char *prompt;
    const char *stop; /* text that ends what is made; NULL: none */
    int64_t max_new_tokens;
    double temperature;
    int64_t top_k;
    double top_p;
    uint64_t seed;
};

struct generate_result {
    int64_t n_prompt_tokens;
    const struct token_list *tokens; /* new ones, without the end-of-text token */
    const char *text;                /* of the new ones */
    bool ended;                      /* by the model's end of text */
    double prefill_s, decode_s;
    int64_t arena_bytes, arena_predicted, host_bytes;
    int64_t resident_bytes, resident_predicted;
    const char *weights; /* folder they came from; NULL: initialised from the seed */
};

struct generator;

/* Plans, loads weights, encodes the prompt. max_new_tokens beyond the model's context are left
 * out, with a warning. */
enum status generator_open(struct generator **out, const struct config *cfg,
                           const struct generate_options *o) MUST_CHECK;
void generator_close(struct generator *g); /* NULL is fine */

typedef enum status (*generate_callback)(void *user, const char *text, size_t n_bytes);

/* on_text and stop may be NULL. *result points into the generator. */
enum status generator_run(struct generator *g, generate_callback on_text, void *user,
                          const volatile sig_atomic_t *stop,
                          struct generate_result *result) MUST_CHECK;

/* ---- what chatting and samples share ----------------------------------------------------------
 */

/* The tokens of a prompt: at least one. */
enum status generate_encode(const char *text, const struct tokenizer *tokenizer,
                            const struct model *model, struct token_list *out) MUST_CHECK;

/* ERR_USAGE for numbers that make no sense. */
enum status generate_check(const struct generate_options *o) MUST_CHECK;
struct sampler generate_sampler(const struct generate_options *o);

/* ---- for the text that is handed on ---------------------------------------------------------- */

struct utf8_stream {
    unsigned char pending[4];
    int n_pending;
};

/* Appends to `out` the characters that are complete after these bytes. */
void utf8_stream_add(struct utf8_stream *s, const char *bytes, size_t n_bytes, struct str *out);
/* What is still unfinished becomes U+FFFD. */
void utf8_stream_finish(struct utf8_stream *s, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
