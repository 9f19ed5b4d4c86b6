/* hf_dir.h: Hugging Face model folders: finding one by name, its config, its weights, and the
 * files that pass through an export unchanged.
 */
#ifndef SNUG_IO_HF_DIR_H
#define SNUG_IO_HF_DIR_H

#include <jansson.h>

#include "base/status.h"
#include "io/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *folder (freed by the caller with mem_free) = where the model is: `model` itself when it is a
 * folder, otherwise the snapshot that refs/main names in hub_folder/models--ORG--NAME, the cache
 * of the Hugging Face tools. hub_folder may be NULL: no cache. Nothing is downloaded: ERR_CONFIG
 * says what was looked for. */
enum status hf_dir_resolve(char **folder, const char *model, const char *hub_folder) MUST_CHECK;

/* config.json of a model folder; an object. The caller drops it with json_decref. */
enum status hf_dir_read_config(json_t **config, const char *folder) MUST_CHECK;

/* The weights of a model folder. Pickled weights (pytorch_model.bin) alone are refused, with the
 * command that converts them. */
enum status hf_dir_open_weights(struct st_reader **weights, const char *folder) MUST_CHECK;

/* Copies the tokenizer and generation files that exist in `from` to `to`, each atomically. */
enum status hf_dir_copy_extras(const char *from, const char *to) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
