/* weights_origin.h: which weights a model that is not being trained gets (evaluation, generation,
 * export).
 */
#ifndef SNUG_ENGINE_WEIGHTS_ORIGIN_H
#define SNUG_ENGINE_WEIGHTS_ORIGIN_H

#include "config/config.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *folder (freed by the caller with mem_free) = the model folder to load from, NULL: initialise
 * from the seed. model_folder is where the config's own model lies (or NULL). `spec`:
 *
 *   NULL     the newest complete checkpoint in output_dir; without any checkpoint the config's
 *            model; with checkpoints of which none is complete ERR_CHECKPOINT; with
 *            load_best_model_at_end as "best"
 *   "best"   the one that the newest says is the best; else as NULL
 *   "last"   the newest complete checkpoint in output_dir; none is ERR_CHECKPOINT
 *   "none"   the config's model
 *   other    that folder: a checkpoint (verified whole) or any Hugging Face model folder
 *
 * A checkpoint of another model is ERR_CHECKPOINT. */
enum status weights_origin(const struct config *cfg, const struct model *model,
                           const char *model_folder, const char *spec, char **folder) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
