/* gguf_pre.h: how a tokenizer.json splits text, in llama.cpp's words. */
#ifndef SNUG_IO_GGUF_PRE_H
#define SNUG_IO_GGUF_PRE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *name = of the byte-level way that `root`, the file at `path`, splits text. */
enum status gguf_pre_tokenizer(const char **name, const json_t *root, const char *path) MUST_CHECK;
/* Whether a text that is not byte-level gets a space in front. */
bool gguf_adds_space(const json_t *root);

#ifdef __cplusplus
}
#endif
#endif
