/* adapter_config.h: which parameters of a model a config trains. */
#ifndef SNUG_ENGINE_ADAPTER_CONFIG_H
#define SNUG_ENGINE_ADAPTER_CONFIG_H

#include "config/config.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the model's adapter and what is frozen of it, in its pool. *folder (freed by the caller with
 * mem_free) = where the adapter's matrices come from; NULL: they are drawn, or there is none. */
enum status adapter_from_config(struct model *model, const struct config *cfg,
                                const char *hub_folder, char **folder) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
