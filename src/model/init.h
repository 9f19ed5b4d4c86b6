/* init.h: random initialisation of parameters.
 *
 * An element is a pure function of (seed, parameter name, element number): order, threads, tiers
 * and the number of ranks do not show in the result.
 */
#ifndef SNUG_MODEL_INIT_H
#define SNUG_MODEL_INIT_H

#include "base/team.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements [first, first + n) of parameter p into dst, an array of n elements of a float dtype.
 * The team may be NULL: the caller alone. */
enum status init_param(const struct model_param *p, uint64_t seed, enum dtype dtype, int64_t first,
                       int64_t n, void *dst, struct team *team) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
