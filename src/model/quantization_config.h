/* quantization_config.h: what a config.json says of weights that are stored as codes. */
#ifndef SNUG_MODEL_QUANTIZATION_CONFIG_H
#define SNUG_MODEL_QUANTIZATION_CONFIG_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a `quantization_config` (NULL or null: there is none) into m->quantization.
 * ERR_UNSUPPORTED, by name, for methods other than bitsandbytes'. */
enum status model_parse_quantization(struct model *m, const json_t *config) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
