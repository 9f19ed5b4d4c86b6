/* decisions.h: what is decided about running a graph, typed: the vocabulary of the search.
 *
 * Decisions come from the config or from a search; a plan is what they mean for the values of one
 * graph. They never change what is computed, so several sets of them are tried over one graph.
 */
#ifndef SNUG_SEARCH_DECISIONS_H
#define SNUG_SEARCH_DECISIONS_H

#include "model/blocks.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: everything is kept, on the device. */
struct decisions {
    struct block_set recompute; /* blocks that keep only what leaves them; the rest is made again */
    bool recompute_cheap; /* norms and activations are made again: they cost less than memory */
};

/* Into a plan of that graph that plan_init has made. */
void decisions_apply(const struct decisions *d, struct plan *plan, const struct graph *g);

#ifdef __cplusplus
}
#endif
#endif
