/* probes.h: what a place needs while it works, measured on programs that are emitted for it. */
#ifndef SNUG_SEARCH_PROBES_H
#define SNUG_SEARCH_PROBES_H

#include "search/space.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What each place needs with each of its options (n_kept, n_need), in the order of the chain,
 * MAX_OPTIONS for each; in the pool of the survey. */
enum status probe_needs(struct space *s, bool gradients_away, struct link_option **out) MUST_CHECK;

/* Fills in s->staged. */
enum status probe_staged(struct space *s) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
