/* sample_texts.h: what a network makes of a few prompts while it is trained.
 *
 * A program that extends a sequence by one token shares the arenas of training, as evaluation's
 * does; the key/value cache of the longest text is in the plan. A text depends on the weights, the
 * seed, the step and the prompt alone, and training on none of it.
 *
 *     sample_texts_open     tokens of the prompts: before the engine is planned
 *     sample_texts_join     once it has started, and after its programs have changed
 *     sample_texts_write    between two steps
 */
#ifndef SNUG_TRAIN_SAMPLE_TEXTS_H
#define SNUG_TRAIN_SAMPLE_TEXTS_H

#include <signal.h>

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sample_texts;

/* What was written after a prompt. The texts are valid until the next one is written. */
struct sample_record {
    int64_t step;
    int i_prompt, n_prompts;
    const char *prompt;
    const char *text;
    int64_t n_tokens; /* of the text */
    bool ended;       /* by the model's end of text */
    double seconds;
};

/* ERR_CONFIG where the network writes no text, or a prompt leaves no room for any. */
enum status sample_texts_open(struct sample_texts **out, const struct engine *e) MUST_CHECK;
void sample_texts_free(struct sample_texts *t); /* NULL is fine */

/* What the engine is asked for. */
struct stage_request sample_texts_stage(const struct sample_texts *t);
struct reserve sample_texts_scratch(const struct sample_texts *t);
void sample_texts_join(struct sample_texts *t, struct engine *e);

/* The text of prompt i. *stop (NULL: never) cuts it short. */
enum status sample_texts_write(struct sample_texts *t, int i, int64_t step,
                               const volatile sig_atomic_t *stop,
                               struct sample_record *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
