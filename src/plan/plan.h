/* plan.h: the decisions: what is kept, made again or moved; where storage lives; in what order.
 *
 * A plan says how one graph is run and never what it computes. It knows no op by name: what it
 * needs it asks the op's table row.
 */
#ifndef SNUG_PLAN_PLAN_H
#define SNUG_PLAN_PLAN_H

#include "base/pool.h"
#include "device/device.h"
#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to a forward value between its last forward use and its first backward use. */
enum treatment {
    KEEP,
    RECOMPUTE, /* dropped; its node is emitted a second time */
    MOVE,      /* copied to the tier home[] names and back */
    FORM,      /* a gradient that is never whole: a slice of it is made where one is read */
};

/* What a plan asks of the graph, gathered once; per value, meaningful for view roots. */
struct plan_fact {
    node_id first_backward; /* first backward node that reads it; NODE_NONE: none does */
    node_id first_reader;   /* NODE_NONE: nothing reads it */
    node_id overwritten;    /* node that overwrites its memory; NODE_NONE: none does */
    bool leaves_block;      /* forward nodes of other blocks read it */
    bool read_at_update;    /* the norm or an update reads it */
    bool read_in_step;      /* something that is no update reads it */
    bool is_output;         /* the host reads it */
    bool waits_for_update;  /* of roots: what touches it last is an update that only reads it */
    bool read_whole;        /* something reads it that cannot do with slices */
    int64_t granule;        /* what its readers' slices are counted in, all of them, in elements */
};

/* What a call is made with. */
struct picked {
    const struct kernel *kernel;
    int64_t n_workspace;
    uint64_t call; /* call_hash */
};

/* What emitting a plan tells those who emit it again, as a search does: how long the program was,
 * and what its nodes' whole calls were made with. */
struct plan_emitted {
    size_t n_instrs, n_operands, n_buffers;
    const struct device *device; /* that picked */
    struct picked *picked;       /* per node; no kernel: not yet */
};

struct plan {
    struct pool pool;
    int64_t n_micro;         /* micro-steps per optimizer step */
    enum treatment *treat;   /* per value (view roots are asked) */
    enum tier *home;         /* per value: tier of persistent roots, sums and moved values */
    bool defer_updates;      /* into the next step, each right before what it updates is read */
    int64_t ahead_bytes;     /* fetched before they are needed: how many at a time */
    int64_t behind_bytes;    /* leaving the device while compute goes on: how many at a time */
    int64_t halfway_bytes;   /* in memory of the host on their way from disk, or to it: likewise */
    int64_t slice_bytes;     /* updates of what is larger and away are made in parts; 0: whole */
    struct plan_fact *facts; /* per value; of the graph as it was at plan_init */
    value_id *root;          /* per value, likewise: value_root, */
    value_id *held;          /* and value_view_root, */
    int64_t *n_bytes;        /* and value_bytes */
    int64_t *sliceable;      /* per node, likewise: node_sliceable */
    struct plan_emitted *emitted;
    int n_blocks_recomputed; /* for reports */
    int n_blocks;
    node_id blocks_begin; /* the first forward node of a block; NODE_NONE: there is none */
};

/* Everything kept but what is made for each of its readers (RECOMPUTE_ALWAYS), everything at home
 * on the device. */
enum status plan_init(struct plan *p, const struct graph *g, int64_t n_micro) MUST_CHECK;
/* The same once more for the same graph, whose facts are known. */
void plan_restart(struct plan *p, const struct graph *g);
void plan_release(struct plan *p);

/* Equal for plans of one graph that come to the same program; good while the process runs. */
uint64_t plan_hash(const struct plan *p, const struct graph *g);

/* Can value v be treated so? What a plan sets in treat[] by hand it asks here first: a value that
 * is overwritten, read by the host or an update, or made by an op with effects is not made again,
 * and neither is one whose inputs have changed by the time it is needed. */
bool plan_allows(const struct plan *p, const struct graph *g, value_id v, enum treatment t);

/* Elements that slices of v, made where they are read, are counted in: whole rows for the node that
 * makes v and whole granules for all that read it; 0: v cannot be made so (FORM). */
int64_t plan_form_unit(const struct plan *p, const struct graph *g, value_id v);

/* Bytes of a slice of n_bytes, where slices are of slice_bytes: more than any memory holds is not
 * cut into more slices than are planned in seconds. */
int64_t plan_slice_bytes(int64_t slice_bytes, int64_t n_bytes);

/* May v be made again without making another block's forward pass run again too? */
bool plan_may_drop(const struct plan *p, const struct graph *g, value_id v);

/* Block b keeps only what crosses into other blocks; the rest of its forward is run again. */
void plan_recompute_block(struct plan *p, const struct graph *g, int block);
/* Which parts there are in the graph's blocks (bits of enum module_kind), and in every block what
 * nodes of some of them make is made again, unless other blocks read it. Norms and attention are
 * what their ops are; what leads to an attention inside its block belongs to it, and what comes of
 * a norm otherwise is the MLP. What adds a part to the residual is of none. */
enum status plan_find_modules(const struct graph *g, unsigned *modules) MUST_CHECK;
enum status plan_recompute_modules(struct plan *p, const struct graph *g,
                                   unsigned modules) MUST_CHECK;
/* Saved values of RECOMPUTE_CHEAP ops are dropped wherever their inputs are kept anyway. */
void plan_recompute_cheap(struct plan *p, const struct graph *g);
/* Value v, which may be moved (plan_allows), goes to `tier` after the forward pass. */
void plan_move(struct plan *p, value_id v, enum tier tier);
/* Block b's saved values go to `tier` after the forward pass. */
void plan_move_block(struct plan *p, const struct graph *g, int block, enum tier tier);
/* All storage of a role lives in `tier` and is fetched when used. */
void plan_set_home(struct plan *p, const struct graph *g, enum role role, enum tier tier);

/* Can updates run in the next step, each right before what it updates is read? */
bool plan_may_defer(const struct plan *p, const struct graph *g);

/* Moves every update to the earliest place its operands allow, so that a gradient lives only from
 * the node that completes it to its update. */
enum status schedule_updates_early(struct graph *g) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
