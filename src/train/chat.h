/* chat.h: a conversation with a model, in its chat template.
 *
 *     TRY(chat_open(&c, cfg, &options));
 *     TRY_GOTO(chat_say(c, "Hello", 5, on_text, user, stop, &result), out);
 *     out: chat_close(c);
 *
 * The key/value cache stays between turns: of each new prompt, only what comes behind the part that
 * it shares with what is in the cache goes through the model.
 */
#ifndef SNUG_TRAIN_CHAT_H
#define SNUG_TRAIN_CHAT_H

#include "train/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct chat;

struct chat_options {
    struct generate_options generate; /* its prompt is not read */
    const char *system;               /* message; NULL: none, or the template's own */
    int64_t context;                  /* tokens that a conversation may have; 0: as the model */
};

/* Plans, loads weights. ERR_CONFIG or ERR_UNSUPPORTED without a chat template. */
enum status chat_open(struct chat **out, const struct config *cfg,
                      const struct chat_options *o) MUST_CHECK;
void chat_close(struct chat *c); /* NULL is fine */

/* The user says something, and the assistant answers. Both are kept, unless it fails: then the
 * conversation is as before. ERR_USAGE when it has become too long. */
enum status chat_say(struct chat *c, const char *text, size_t n_bytes, generate_callback on_text,
                     void *user, const volatile sig_atomic_t *stop,
                     struct generate_result *result) MUST_CHECK;
/* Begins anew, with the same system message. */
void chat_reset(struct chat *c);

#ifdef __cplusplus
}
#endif
#endif
