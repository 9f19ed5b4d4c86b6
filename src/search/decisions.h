/* decisions.h: what is decided about running a graph, typed: the vocabulary of the search.
 *
 * Decisions come from the config or from a search; a plan is what they mean for the values of one
 * graph. They never change what is computed, so several sets of them are tried over one graph.
 */
#ifndef SNUG_SEARCH_DECISIONS_H
#define SNUG_SEARCH_DECISIONS_H

#include <limits.h>

#include "base/str.h"
#include "model/blocks.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What leaves the device, in the order of a ladder: each is a number of blocks, counted from the
 * first, whose part of it does; gradients that wait for the norm are counted from the last. What
 * belongs to no block (embedding, head) counts as one more. */
enum extent {
    EXTENT_MOVED,      /* what the forward pass saves goes to the host until it is read */
    EXTENT_RECOMPUTED, /* only what leaves the block is saved; the rest is made again */
    EXTENT_STATES,     /* masters and optimizer states are at home on the host, or on disk */
    EXTENT_GRADIENTS,  /* gradients that wait for the norm, and sums over micro-steps */
    EXTENT_WEIGHTS,    /* weights are */
    EXTENT_COUNT
};

/* As reports name it: "weights_on_host". */
const char *extent_name(enum extent e);

/* An extent that is as large as any: every block, and what belongs to none. */
#define EXTENT_WHOLE INT_MAX

/* A place is a block, or one of two more: what belongs to no block and comes before the first of
 * them (the embedding), and what comes after (the head). */
enum home_class {
    HOME_WEIGHTS,
    HOME_STATES,    /* masters too */
    HOME_GRADIENTS, /* as in the extent */
    HOME_CLASS_COUNT
};

/* What becomes of the outputs of a place's forward nodes, in the order of these. Blocks that are
 * alike share their sets. What cannot be made again or moved is kept. */
struct saved_set {
    const enum treatment *treat; /* [n_nodes] */
    int n_nodes;
    const char *recomputed, *moved; /* names for reports: "gate_up, mlp_norm"; "": nothing */
};

/* A copy, in the pool. */
enum status saved_set_copy(const struct saved_set *s, struct pool *pool,
                           const struct saved_set **out) MUST_CHECK;

struct place_choice {
    const struct saved_set *saved;
    bool away[HOME_CLASS_COUNT]; /* at home on the host, or on disk */
};

/* All zero: everything is kept, on the device. */
struct decisions {
    /* Blocks that keep only what leaves them, besides the extent; or parts of every block, and then
     * no block whole. */
    struct block_set recompute;
    bool recompute_cheap; /* norms and activations are made again: they cost less than memory */
    int n[EXTENT_COUNT];
    /* So many blocks have what of these is away on disk instead of on the host (decisions_tier). */
    int disk[EXTENT_COUNT];
    int64_t halfway_bytes; /* as ring_bytes, between disk and device; less than those is as many */
    int group; /* micro-batches that run together, block by block; 0 and 1: one at a time */
    bool defer_updates;  /* into the next step's forward pass, where the graph allows it */
    int64_t small_bytes; /* smaller tensors stay: a copy of one takes longer than its bytes */
    int64_t ring_bytes;  /* fetched ahead of their use, and as many that leave behind it */
    /* Larger tensors that are away are updated in slices of so many; 0: whole. */
    int64_t slice_bytes;
    /* Gradients that are larger, and made from much less than they are, are made in slices where
     * they are read, and never whole; 0: they are. */
    int64_t form_bytes;
    /* Chosen place by place, instead of by the fields above but `disk` and the last four; the
     * extents are then how many places there are of each. NULL: they are not. Borrowed. */
    const struct place_choice *places;
    int n_places; /* blocks + 2 */
};

/* Copies of an eighth of it run at the full speed of any link, and states in 8 bits are half of
 * what their slice of the weights is; a few of them at a time are little beside what a step needs.
 */
#define SLICE_BYTES ((int64_t)64 << 20)

/* Where a node belongs, and what has no producer, by who reads it: [0, n_blocks + 2). */
int place_of_node(const struct plan *p, const struct graph *g, node_id k);
int place_of_root(const struct plan *p, const struct graph *g, value_id v);
/* The class of what lives outside the passes; HOME_CLASS_COUNT: none that could be away. */
enum home_class home_class_of(enum role role);
/* The extent that says how much of a class is away. */
enum extent home_extent(enum home_class c);
/* Where what an extent has away of a place goes. */
enum tier decisions_disk_tier(const struct decisions *d, enum extent e, int place, int n_blocks);
static inline enum tier decisions_tier(const struct decisions *d, enum extent e, int place,
                                       int n_blocks)
{
    return d->disk[e] == 0 ? TIER_HOST : decisions_disk_tier(d, e, place, n_blocks);
}
/* Is anything on disk? */
bool decisions_use_disk(const struct decisions *d);
/* Is it worth a copy? */
bool decisions_is_large(const struct decisions *d, const struct graph *g, value_id v);

/* Into a plan of that graph, to run on that device, that plan_init has made. */
enum status decisions_apply(const struct decisions *d, struct plan *plan, const struct graph *g,
                            const struct device *device) MUST_CHECK;
/* Of a graph without a backward pass: where storage is at home, the same as for the others of a
 * run. */
void decisions_apply_homes(const struct decisions *d, struct plan *plan, const struct graph *g);

/* *out: the same, with all that it points to in the pool but what the config holds. */
enum status decisions_keep(const struct decisions *d, struct pool *pool,
                           struct decisions *out) MUST_CHECK;

/* Whether anything is copied between tiers. */
bool decisions_copy(const struct decisions *d);
/* In words: "12 blocks recomputed, states of 28 blocks on the host, ...". */
void decisions_add_text(const struct decisions *d, int n_blocks, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
