/* loss_scale.h: inside optim/: the scaler in the graph. */
#ifndef SNUG_OPTIM_LOSS_SCALE_H
#define SNUG_OPTIM_LOSS_SCALE_H

#include "optim/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The loss scale that optimizer_scale_seed put into the graph. */
value_id loss_scale_value(const struct builder *b);

/* Adds the scaler's own update, from clip_scale's outputs. *next: the scale after this step.
 * Returns the number of applied steps, this one included. */
value_id loss_scale_update(struct builder *b, const struct loss_scaling *s, value_id update,
                           value_id norm, value_id *next);

#ifdef __cplusplus
}
#endif
#endif
