/* averages.h: weights and what the optimizer keeps beside them of their own: averages over the
 * steps
 * ("ema.<param>") and slow weights ("slow.<param>"). */
#ifndef SNUG_ENGINE_AVERAGES_H
#define SNUG_ENGINE_AVERAGES_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* They begin as the weights. from[i]: the widest copy there is of parameter i. */
enum status averages_start(struct engine *e, const struct tensor *from) MUST_CHECK;

/* The averages take the place of the weights and the weights theirs, to the bit: a second call puts
 * them back. What is evaluated and saved in between is the averages; a checkpoint holds both as
 * they are then. Nothing where no averages are kept. No update may be pending. */
enum status averages_swap(struct engine *e) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
