/* export.h: a model written as a Hugging Face folder: config.json, model.safetensors (or shards and
 * their index), and the tokenizer and generation files of the model it came from.
 *
 * Used by `snug export`, and by checkpoints for the files at their top level.
 */
#ifndef SNUG_IO_EXPORT_H
#define SNUG_IO_EXPORT_H

#include <stdbool.h>

#include "io/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything is borrowed for the call. */
struct export_content {
    const struct model *model;
    const struct model_param *params; /* [n_params] */
    int n_params;
    const struct tensor *tensors;     /* [n_params], any float dtype */
    const struct tensor_stage *stage; /* how to read them */
    enum dtype dtype;                 /* in the file: F32, BF16 or F16 (F64 is possible too) */
    bool as_in_memory; /* tensors keep their dtypes; `dtype` is only what config.json says */
    const char *extras_folder; /* where tokenizer files are copied from; NULL: there are none */
    const char *chat_family;   /* the chat template to write; NULL: the tokenizer's own, if any */
    bool adapter;     /* what is written is the model's adapter: PEFT's files (peft.h) instead */
    const char *base; /* then: where the model comes from, as others find it; NULL: nowhere */
    const char *weights_folder; /* where the stage reads; NULL: nowhere */
    int64_t max_shard_bytes;    /* 0: what Hugging Face cuts at */
};

/* Writes the files into an existing folder and syncs them. No atomicity: the folder is the caller's
 * temporary one. Needs a few MiB whatever the model. A weight that F16 cannot hold is ERR_CONFIG.
 */
enum status export_write(const char *folder, const struct export_content *content) MUST_CHECK;

/* Makes the folder out_dir (and the ones above it) with these files, whole or not at all: they are
 * written beside it and renamed into place. An out_dir that is not empty is ERR_USAGE unless
 * `force`, also when it is an earlier export: it may be of another model. A folder with folders
 * inside is never replaced, nor one that the model is read from. */
enum status export_model(const char *out_dir, const struct export_content *content,
                         bool force) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
