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

/* Where a model's weights and its adapter's come from; NULL: they are drawn from the seed. */
struct weight_folders {
    const char *model, *adapter;
};
/* By the folder that was asked for, which may be either's, and the config's own. ERR_CONFIG when
 * there is an adapter for a model without one. */
enum status weight_folders(struct weight_folders *out, const struct model *model, const char *asked,
                           const char *model_folder, const char *adapter_folder) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
