/* emit.h: inside program/: the state of one emission.
 *
 *   emit.c        sections, nodes, recompute on demand
 *   emit_copy.c   everything that crosses tiers: inputs, outputs, moved values, storage kept on the
 * host emit_parts.c  buffers, operands, instructions merge.c       outputs that take over the
 * memory of an input that dies place.c       lifetimes to addresses
 */
#ifndef SNUG_PROGRAM_EMIT_H
#define SNUG_PROGRAM_EMIT_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COPY_WINDOW = 8 }; /* nodes a copy-out may trail behind before compute waits for it */

struct pending_copy {
    int32_t buffer; /* device buffer being copied out: alive until the wait */
    int event;
    int64_t due; /* count of emitted nodes */
};

/* Arrays are indexed by value; entries are meaningful for roots (value_root). */
struct emitter {
    struct program *p;
    const struct graph *g;
    const struct plan *plan;
    const struct device *device;
    struct storage *storage;

    int32_t *where;        /* device buffer that holds the root now; -1: none */
    int32_t *home;         /* storage off the device: its buffer there; -1 */
    int32_t *moved;        /* host buffer of a moved value; -1 */
    int *ready;            /* event after which the off-device copy is complete; -1: long ago */
    bool *again;           /* where[] holds a recomputed instance */
    bool *dirty;           /* where[] is newer than home[] */
    node_id *last_forward; /* last forward node that touches the root */
    bool *read_backward;   /* some backward node reads it */
    bool *read;            /* some node, or the host, reads it */

    VEC(value_id) staged; /* roots whose where[] is a fetched copy of home[] */
    VEC(struct pending_copy) pending;
    int64_t n_nodes; /* emitted so far */
};

/* emit_parts.c */
enum status emit_buffer(struct emitter *e, const char *name, enum memory_class kind, enum tier tier,
                        int64_t n_bytes, value_id value, int32_t *out) MUST_CHECK;
enum status emit_operand(struct emitter *e, int32_t buffer, enum access access,
                         value_id value) MUST_CHECK;
enum status emit_instr(struct emitter *e, struct instr i, int32_t n_operands) MUST_CHECK;
enum status emit_event(struct emitter *e, enum instr_kind kind, enum queue q, int event) MUST_CHECK;
enum memory_class emit_class(const struct graph *g, value_id root, bool recomputed);

/* emit_copy.c */
enum status emit_input_copies(struct emitter *e, node_id first, node_id end,
                              const uint8_t *in_section) MUST_CHECK;
enum status emit_output_copies(struct emitter *e) MUST_CHECK;
enum status emit_move_out(struct emitter *e, value_id root) MUST_CHECK;
enum status emit_move_in(struct emitter *e, value_id root) MUST_CHECK;
enum status emit_stage_in(struct emitter *e, value_id root) MUST_CHECK;
enum status emit_unstage_all(struct emitter *e) MUST_CHECK;
enum status emit_wait_pending(struct emitter *e, bool all) MUST_CHECK;

/* emit.c: makes v's memory present on the device (fetches, or recomputes for a backward reader). */
enum status emit_ensure(struct emitter *e, value_id v, bool backward) MUST_CHECK;

/* merge.c */
enum status merge_in_place(struct program *p) MUST_CHECK;

/* The buffer whose memory b shares. */
int32_t buffer_root(const struct program *p, int32_t b);

#ifdef __cplusplus
}
#endif
#endif
