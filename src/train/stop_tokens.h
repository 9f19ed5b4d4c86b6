/* stop_tokens.h: the tokens at which a text that is being generated ends. */
#ifndef SNUG_TRAIN_STOP_TOKENS_H
#define SNUG_TRAIN_STOP_TOKENS_H

#include "data/tokenizer.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the tokenizer's EOS and every eos_token_id, a number or a list, of the model's config and
 * of generation_config.json in its folder, which may be NULL. */
enum status stop_tokens_read(struct token_list *out, const struct tokenizer *t,
                             const struct model *model, const char *folder) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
