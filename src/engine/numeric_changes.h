/* numeric_changes.h: the changes of a run's numbers that advice knows, as settings: smaller dtypes,
 * smaller states, no clipping, shorter sequences. A set of them has bit i for change i.
 */
#ifndef SNUG_ENGINE_NUMERIC_CHANGES_H
#define SNUG_ENGINE_NUMERIC_CHANGES_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_NUMERIC_CHANGES = 16 };
int numeric_changes_count(void);
/* How much a run minds; of a set, the sum. */
int numeric_change_harshness(int i);

/* Makes them in *c, the engine's config or one made of it; false: one cannot be made there. */
bool numeric_changes_apply(unsigned set, const struct engine *e, struct config *c);
/* As settings are given, "bf16=true optim=adamw_8bit", of a config in which they are made. */
void numeric_changes_add_text(unsigned set, const struct config *c, struct str *out);

/* *c becomes the engine's config with one of them; false: it cannot be made here, or would make
 * another run of it. */
bool numeric_change_alone(int i, const struct engine *e, struct config *c, struct str *text);

#ifdef __cplusplus
}
#endif
#endif
