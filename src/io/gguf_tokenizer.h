/* gguf_tokenizer.h: a tokenizer as keys of a GGUF file: tokens, their kinds, merges or scores,
 * which of them begin and end a text, and the chat template.
 */
#ifndef SNUG_IO_GGUF_TOKENIZER_H
#define SNUG_IO_GGUF_TOKENIZER_H

#include "io/gguf.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tokenizer.json of a folder and what lies beside it; with `family` (data/chat.h), a template
 * of that family in place of the tokenizer's own. llama.cpp knows ways to split text by name: a
 * tokenizer that splits in none of them is ERR_UNSUPPORTED. `folder` NULL, or without a tokenizer:
 * the keys say that there is none, and *has_one is false. */
enum status gguf_tokenizer_keys(struct gguf *g, const char *folder, const char *family,
                                const struct language_facts *model, bool *has_one) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
