/* quantization_config.h: how a config says that weights are kept as codes. */
#ifndef SNUG_ENGINE_QUANTIZATION_CONFIG_H
#define SNUG_ENGINE_QUANTIZATION_CONFIG_H

#include "config/config.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* model->quantization from the config; a folder's own stays, and keys that say another are
 * ERR_CONFIG. */
enum status quantization_from_config(struct model *model, const struct config *cfg) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
