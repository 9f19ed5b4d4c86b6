/* space_internal.h: inside search/: what a candidate of a space means, step by step.
 *
 *     space.c   what there is to choose from, and a candidate expanded
 *     grid.c    every candidate of it, with its estimate
 */
#ifndef SNUG_SEARCH_SPACE_INTERNAL_H
#define SNUG_SEARCH_SPACE_INTERNAL_H

#include "search/space.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of an adapter: less than such a part of the room is. */
bool space_is_small_class(const struct space *s, enum home_class c);
/* s->away, and bytes that are in each tier whatever is saved. */
void space_place_homes(struct space *s, const struct candidate *c, int64_t n_bytes[TIER_COUNT]);
/* s->option, with its homes in place, which are at_home[] bytes; false: there is no room. */
bool space_choose_sets(struct space *s, const struct candidate *c,
                       const int64_t at_home[TIER_COUNT]);

/* *out: the same space for another thread, with arrays of its own (in the pool) for the candidate
 * at hand. */
enum status space_share(const struct space *s, struct pool *pool, struct space *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
