/* model_open.h: the model a config asks for: keys of its own, or a folder's config.json with the
 * config's keys over it. */
#ifndef SNUG_ENGINE_MODEL_OPEN_H
#define SNUG_ENGINE_MODEL_OPEN_H

#include "config/config.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *folder is where its weights are, or NULL; freed by the caller. hub_folder: the Hugging Face
 * cache for names such as ORG/NAME; NULL: none. */
enum status open_model(const struct config *cfg, const char *hub_folder, struct model **model,
                       char **folder) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
