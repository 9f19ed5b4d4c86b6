/* route.h: how what outlives a step gets from the arenas of programs that run to those of others.
 *
 * A tier whose old and new arena may be there at once (`beside`) is copied from and to directly.
 * Where they may not, because the budgets or what is free are too little for both, the old one goes
 * back to the system first, and what is at home in such a tier before and after waits in a carrier:
 * in host memory as far as there is room, the rest in a file.
 *
 *     at home in          then in           goes
 *     one that goes   ->  one that goes     by the carrier
 *     one that goes   ->  one beside        directly, before it goes
 *     one beside      ->  one that goes     directly, once the new one is there
 *     one beside      ->  one beside        directly, at last: until then there is a way back
 *
 * Memory whose pages come with their use and go back singly (the CPU's) is always beside: pages of
 * the old arena go as those of the new one are filled.
 */
#ifndef SNUG_ENGINE_ROUTE_H
#define SNUG_ENGINE_ROUTE_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum passage { PASSAGE_CARRIED, PASSAGE_BEFORE, PASSAGE_AFTER, PASSAGE_LAST };

/* A storage entry, in both. */
struct passenger {
    const struct storage_entry *from, *to; /* borrowed */
    enum passage passage;
    int64_t at; /* in the carrier, a multiple of ROUTE_ALIGN */
};

enum {
    ROUTE_ALIGN = 4096,           /* a disk's blocks stay whole */
    ROUTE_BUFFER_BYTES = 2 << 20, /* of the heap, to fill a carrier and to empty it, at most */
};

struct route {
    bool beside[TIER_COUNT];
    VEC(struct passenger) passengers; /* in the order of their old places in each tier */
    int64_t moved_bytes;              /* of all of them */
    int64_t carrier_bytes;            /* by the carrier, alignment included */
    int64_t memory_bytes;             /* of these, in memory */
    /* The most that is held meanwhile, against the budgets as budget.needs is: of the host's memory
     * with what the process holds beside its arenas, where the carrier's is. */
    int64_t held[TIER_COUNT];
};

/* From e to next, as the budgets of both and what is free now allow. `alone`: no arenas beside each
 * other. */
enum status route_find(struct route *r, const struct engine *e, const struct engine *next,
                       bool alone) MUST_CHECK;
void route_release(struct route *r);

/* For tests: the most that goes into memory from now on; -1: as much as there is room for. */
void route_keep_memory_to(int64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
