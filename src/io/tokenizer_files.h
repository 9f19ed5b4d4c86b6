/* tokenizer_files.h: the tokenizer that goes with a model, as files beside it. */
#ifndef SNUG_IO_TOKENIZER_FILES_H
#define SNUG_IO_TOKENIZER_FILES_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the tokenizer that tokenizer_open knows as `name` into the folder: a tokenizer.json and
 * what lies beside it are copied; the built-in `bytes` is written as the byte-level BPE without
 * merges that it is, which gives the same ids here and in other programs. */
enum status tokenizer_files_write(const char *name, const char *folder) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
