/* quantization_config.h: what a config.json says of weights that are stored as codes. */
#ifndef SNUG_MODEL_QUANTIZATION_CONFIG_H
#define SNUG_MODEL_QUANTIZATION_CONFIG_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the config of a Llama one of BitNet b1.58, which has norms before every linear layer and
 * rounded weights. ERR_UNSUPPORTED for other models. */
enum status model_config_make_ternary(json_t *config) MUST_CHECK;
/* The `quantization_config` of such a model. New reference, NULL when out of memory. */
json_t *model_ternary_config(void);

/* Reads a `quantization_config` (NULL or null: there is none) into m->quantization.
 * ERR_UNSUPPORTED, by name, for methods other than bitsandbytes' and
 * bitnet. */
enum status model_parse_quantization(struct model *m, const json_t *config) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
