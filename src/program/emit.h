/* emit.h: inside program/: the state of one emission, and what the files here share.
 *
 *   emit.c        sections and nodes, recompute on demand
 *   emit_slice.c  updates in parts, so that what is away is never on the device as a whole, and a
 *                 gradient that is made for them need never be anywhere as a whole
 *   pick.c        the kernel of a node
 *   emit_copy.c   everything that crosses tiers: inputs, outputs, moved values, storage elsewhere
 *   overlap.c     fetches that start before they are needed
 *   slack.c       what comes from disk or goes there takes what the host has free
 *   emit_uses.c   who reads what, and when moved values leave
 *   emit_parts.c  buffers, operands, instructions
 *   sections.c    which parts a step has, and what roots hold between them
 *   order.c       the nodes of a section, with what it runs of the step before
 *   merge.c       outputs that take over the memory of an input that dies
 *   place.c       lifetimes to addresses
 *   check.c       the program says what the graph says; lifetimes do not collide
 *   simulate.c    contents of memory and order between queues
 */
#ifndef SNUG_PROGRAM_EMIT_H
#define SNUG_PROGRAM_EMIT_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy out that compute has not waited for: from the device, or from memory of the host that was
 * halfway to disk. */
enum pending_kind { PENDING_DEVICE, PENDING_HALFWAY, PENDING_KINDS };
struct pending_copy {
    int32_t buffer; /* being copied out: alive until the wait, */
    int32_t to;     /* and so is this, unless it is read before: nobody else writes there, */
    int32_t at;     /* which was touched last by this instruction */
    int event;
    int64_t n_bytes;
    enum pending_kind kind;
};

/* Instructions that overlap.c moves: a copy in with its events, towards the front, without the wait
 * of compute that follows; or a wait of compute for a copy out, towards the end. */
struct movable {
    int32_t first, n; /* instructions */
    int after;        /* copy in: event behind which its source is complete; -1: long ago */
    int64_t n_bytes;
    int32_t onward; /* of a read to halfway: the fetch that takes it to the device */
};

/* Picks of calls so far, by the hash of the call: of many nodes few are distinct. */
enum { N_PICKS = 1024 };
struct known_pick {
    uint64_t hash;
    struct picked picked; /* no kernel: the slot is empty */
};

struct section_rule;

/* Arrays are indexed by value; entries are meaningful for roots (value_root). */
struct emitter {
    struct program *p;
    const struct graph *g;
    const struct plan *plan;
    const struct device *device;
    struct storage *storage;

    const value_id *root;   /* value_root of each */
    const value_id *held;   /* value_view_root of each */
    const int64_t *n_bytes; /* value_bytes of each */
    int32_t *where;         /* device buffer that holds the root now; -1: none */
    int32_t *home;          /* root kept off the device: its buffer there; -1 */
    int32_t *moved;         /* host buffer of a moved value; -1 */
    int *ready;             /* event after which the off-device copy is complete; -1: long ago */
    bool *again;            /* where[] holds a recomputed instance */
    value_id *now;          /* the value of its update chain that the root's memory holds */
    node_id *leaves_after;  /* node after which a moved root leaves; NODE_NONE: it stays */
    node_id *touched_last;  /* the last node that reads or writes the root */
    bool *read_later;       /* read after the forward pass, by a node or by one that runs again */
    bool *read;             /* some node, or the host, reads it */
    int32_t *whole_reads;   /* reads to come while fetched copies are good, of it as a whole */
    int32_t *overwrites;    /* likewise: how often nodes to come overwrite it */
    bool *gradient;         /* its memory ends up holding a parameter's gradient */
    bool *carried;          /* made in one step and read in the next one */
    int32_t *kept;          /* carried: the buffer that it is in between sections; -1 */
    value_id *newest;       /* of roots: what its memory holds when a whole step is done */

    struct known_pick *picks; /* [N_PICKS], at hash % N_PICKS */
    struct {
        node_id node;
        int64_t n;            /* elements of the slice; 0: none yet */
        struct picked picked; /* for slices of that size, wherever they begin */
    } sliced;                 /* the last one */

    struct {
        int block;
        const char *name; /* of what the op makes in the block */
    } named[OP_COUNT];    /* NULL: none yet */
    bool late;            /* the node being emitted belongs to the step before */
    bool ends_step;       /* of the section: nothing reads a carried root after it */
    node_id stretch_end;  /* the last node that fetched copies are good for */
    VEC(value_id) staged; /* roots whose where[] is a fetched copy of home[] */
    VEC(value_id) parts;  /* roots whose where[] is a part that was fetched for one slice */
    VEC(struct pending_copy) pending;
    int64_t pending_bytes[PENDING_KINDS];
    VEC(struct movable) fetches; /* to the device */
    VEC(struct movable) reads;   /* from disk to halfway, each before its fetch */
    VEC(struct movable) waits;   /* for copies from halfway to disk: the memory is free again */
};

/* emit_uses.c: read, read_later, gradient, touched_last, leaves_after. */
void emit_find_uses(struct emitter *e);

/* emit_parts.c */
enum status emit_buffer(struct emitter *e, const char *name, enum memory_class kind, enum tier tier,
                        int64_t n_bytes, value_id value, int32_t *out) MUST_CHECK;
enum status emit_operand(struct emitter *e, int32_t buffer, enum access access,
                         value_id value) MUST_CHECK;
/* Some bytes of the value. */
enum status emit_operand_range(struct emitter *e, int32_t buffer, enum access access,
                               value_id value, struct byte_range range) MUST_CHECK;
enum status emit_instr(struct emitter *e, struct instr i, int32_t n_operands) MUST_CHECK;
enum status emit_event(struct emitter *e, enum instr_kind kind, enum queue q, int event) MUST_CHECK;
enum memory_class emit_class(const struct emitter *e, value_id root, bool recomputed);

/* emit_copy.c */
enum status emit_input_copies(struct emitter *e, const struct section_rule *rule) MUST_CHECK;
enum status emit_output_copies(struct emitter *e) MUST_CHECK;
enum status emit_move_out(struct emitter *e, value_id root) MUST_CHECK;
enum status emit_move_in(struct emitter *e, value_id root) MUST_CHECK;
enum status emit_stage_in(struct emitter *e, value_id root) MUST_CHECK;
/* Room for a root that is overwritten whatever it holds: nothing is fetched. */
enum status emit_stage_blank(struct emitter *e, value_id root) MUST_CHECK;
/* Copies a root that was just updated on the device back to its home. */
enum status emit_write_back(struct emitter *e, value_id root) MUST_CHECK;
/* A part of what a root holds off the device: where[] is that part until emit_drop_parts. */
enum status emit_fetch_part(struct emitter *e, value_id root, value_id value,
                            struct byte_range range) MUST_CHECK;
void emit_drop_parts(struct emitter *e);
/* Copies a part of a root home; *done: the event behind which it is there. */
enum status emit_write_part(struct emitter *e, value_id root, value_id value,
                            struct byte_range range, int *done) MUST_CHECK;
/* Fetched copies are let go: the next reader fetches again. */
void emit_unstage_all(struct emitter *e);
/* Compute waits for copies out: the oldest until plan.behind_bytes hold the rest (of those from
 * halfway to disk, plan.halfway_bytes), those of one buffer, all. */
enum status emit_wait_due(struct emitter *e) MUST_CHECK;
enum status emit_wait_buffer(struct emitter *e, int32_t buffer) MUST_CHECK;
enum status emit_wait_all(struct emitter *e) MUST_CHECK;

/* overlap.c: fetches move ahead of their readers, within plan.ahead_bytes, and what they read from
 * disk ahead of them, within plan.halfway_bytes and what slack.c finds. */
enum status overlap_fetches(struct emitter *e) MUST_CHECK;

/* slack.c: where waits stand, and reads even earlier than read_at, while the host holds no more
 * than it does at its fullest: in instructions before which they stand. recorded: per event, the
 * instruction that records it. */
enum status slack_use(const struct emitter *e, const int32_t *recorded, int32_t *read_at,
                      int32_t *waits_at) MUST_CHECK;

/* emit_slice.c: is what the node makes never whole (FORM)? */
bool emit_is_formed(const struct emitter *e, const struct node *n);
/* Does the plan want the node made in slices, as things are now? */
bool emit_in_slices(const struct emitter *e, node_id k);
enum status emit_slices(struct emitter *e, node_id k) MUST_CHECK;

/* pick.c */
enum status pick_kernel(const struct graph *g, const struct node *n, struct slice slice,
                        const struct device *device, struct picked *out) MUST_CHECK;
/* The same for an emission, which remembers what it has picked. */
enum status emit_pick(struct emitter *e, node_id k, struct slice slice,
                      struct picked *out) MUST_CHECK;

/* signature.c: op, attributes, dtypes and shapes as a number, which is good while the process runs.
 */
uint64_t call_hash(const struct graph *g, const struct node *n, struct slice slice);

/* emit.c: output i gets a buffer of all its bytes, or where it updates an input that one's. */
enum status emit_output(struct emitter *e, const struct node *n, int i, bool recompute,
                        int32_t *buffer) MUST_CHECK;
const char *emit_name(struct emitter *e, const struct node *n, int output);
/* emit.c: the node's instruction; its inputs are on the device, and outputs of a slice. */
enum status emit_compute(struct emitter *e, node_id k, bool recompute,
                         struct slice slice) MUST_CHECK;
/* emit.c: makes v's memory present on the device (fetches, or recomputes for a backward reader). */
enum status emit_ensure(struct emitter *e, value_id v, bool backward) MUST_CHECK;

/* sections.c: the parts the host runs one at a time. */
struct section_rule {
    const char *name;
    uint32_t before; /* bits of enum pass: what the step has behind it when the section begins */
    uint32_t passes; /* likewise: what it runs */
    uint32_t late;   /* likewise: what it runs of the step before, which deferred it */
    bool alone;      /* of micro-batches that run in groups only the first */
    bool carries;    /* the next section reads what is carried */
    bool ends;       /* the host reads the outputs after it */
};
/* The list a graph needs, ended by a NULL name. */
const struct section_rule *section_rules(const struct graph *g, const struct plan *plan);
/* The list a program says it has; NULL when its sections are none of ours or do not tile its
 * instructions. */
const struct section_rule *section_rules_of(const struct program *p);
/* Does the node run in it, as one of this step? */
bool section_has(const struct section_rule *r, const struct node *n);
/* The section that an instruction is in. */
const struct section *section_at(const struct program *p, int32_t instr);
/* Where the update chain of every root (graph_find_roots) has come when these passes are done
 * (alone: by the first micro-batch of a group): held[root], for all values of the graph. */
void section_held(const struct graph *g, const value_id *root, uint32_t passes, bool alone,
                  value_id *held);
/* carried[root]: a step makes it and a section of the next one reads it, late. */
void section_carried(const struct graph *g, const struct section_rule *rules, bool *carried);

/* order.c: the nodes a section runs. */
struct ordered_node {
    node_id node;
    node_id beside; /* the node for whose sake it stands there: itself, but for late ones */
    bool late;      /* it belongs to the step before */
};
struct section_order {
    struct ordered_node *items; /* the caller's to free */
    size_t n;
};
enum status section_order(const struct graph *g, const struct section_rule *rule,
                          struct section_order *out) MUST_CHECK;

/* merge.c */
enum status merge_in_place(struct program *p) MUST_CHECK;

/* simulate.c: the walk over memory that check.c has prepared the ground for. */
enum status simulate(const struct program *p, const struct storage *storage,
                     const struct section_rule *rules) MUST_CHECK;

/* The buffer whose memory b shares. */
static inline int32_t buffer_root(const struct program *p, int32_t b)
{
    while (p->buffers.items[b].merged_into >= 0)
        b = p->buffers.items[b].merged_into;
    return b;
}

#ifdef __cplusplus
}
#endif
#endif
