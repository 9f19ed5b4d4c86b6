/* config_override.h: settings that change keys of a Hugging Face config.json.
 *
 * Some settings have two names (GPT-2's n_embd is hidden_size elsewhere; rope_scaling became
 * rope_parameters): an override stands in for the config's own spelling too, so that it is never
 * there and without effect.
 */
#ifndef SNUG_MODEL_CONFIG_OVERRIDE_H
#define SNUG_MODEL_CONFIG_OVERRIDE_H

#include <jansson.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Puts each key of `overrides` into the config. A mapping (rope_scaling) replaces the whole one. */
enum status model_config_override(json_t *config, const json_t *overrides) MUST_CHECK;

/* What the config says about a key, under whichever of its names; NULL: nothing. Borrowed. */
const json_t *model_config_value(const json_t *config, const char *key);

#ifdef __cplusplus
}
#endif
#endif
