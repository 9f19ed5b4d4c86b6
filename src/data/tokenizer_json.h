/* tokenizer_json.h: what the readers of tokenizer.json share. Not for other files than
 * tokenizer_json.c (the model, its vocabulary, added tokens) and tokenizer_steps.c (the steps
 * around it). */
#ifndef SNUG_DATA_TOKENIZER_JSON_H
#define SNUG_DATA_TOKENIZER_JSON_H

#include "base/json.h"
#include "data/tokenizer_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tokenizer_json.c */
const char *piece_type(const json_t *piece);
int piece_flag(const json_t *piece, const char *name, int otherwise);
/* ERR_UNSUPPORTED: `piece` of `key` would change the ids, and we do not know it. */
enum status piece_unsupported(const struct tokenizer *t, const char *key, const char *piece);
/* An integer that may be a token's id; whether there is such a token is another question. */
enum status check_id(const struct tokenizer *t, const json_t *id, const char *token) MUST_CHECK;

/* tokenizer_steps.c; absent and null are no step. */
/* Whether pieces are bytes: a ByteLevel step is among the pre-tokenizers. */
int pre_tokenizer_is_byte_level(const json_t *piece);
enum status read_normalizer(struct tokenizer *t, const json_t *piece) MUST_CHECK;
enum status read_pre_tokenizer(struct tokenizer *t, const json_t *piece) MUST_CHECK;
enum status read_post_processor(struct tokenizer *t, const json_t *piece) MUST_CHECK;
enum status read_decoder(struct tokenizer *t, const json_t *piece) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
