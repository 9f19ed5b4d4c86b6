/* weights.h: what an engine keeps from step to step: the parameters, and what an optimizer has
 * beside them.
 *
 * Tensors whose bytes the host may not be able to address are read and written through the engine's
 * stage (run/stage.h).
 */
#ifndef SNUG_ENGINE_WEIGHTS_H
#define SNUG_ENGINE_WEIGHTS_H

#include "engine/engine.h"
#include "io/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the parameters in the storage and fills them: from a Hugging Face model folder, or drawn
 * from the seed when that is NULL. */
enum status engine_load_weights(struct engine *e, const char *folder) MUST_CHECK;

/* Finds them alone: e->param_tensors. */
enum status engine_bind_params(struct engine *e) MUST_CHECK;

/* What "master.<parameter i>" holds: f32, or the byte that a weight of 24 bits has beside its bf16
 * (base/split.h); data NULL: there is none. */
struct tensor engine_master(const struct engine *e, int i);

/* States and masters of the stage that trains, as checkpoints keep them. */
struct engine_states {
    VEC(struct checkpoint_tensor) list; /* released with vec_release */
};
enum status engine_find_states(const struct engine *e, struct engine_states *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
