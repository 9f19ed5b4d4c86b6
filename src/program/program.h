/* program.h: one way of running a graph: a straight list of instructions with fixed addresses.
 *
 * Instructions run on queues; a queue is in order, queues are ordered only by events. Operands are
 * (tier, offset, bytes) in the tier's arena. A program has sections the host runs one at a time,
 * with everything finished in between:
 *
 *     one micro-batch per step:    step
 *     n micro-batches per step:    begin   micro x (n - 1)   last
 *     in groups of g:              begin   micro x (n mod g)   group x (n / g - 1)   last
 *     in one group:                step
 *     too few to fill the groups:  begin   group, micro ...   update
 *     updates deferred:            first   step, step, ...   finish
 *     forward only:                forward
 *
 * Storage that outlives a step (parameters, states) is shared between the programs of a run through
 * struct storage; what lives inside a step is placed above it, per program, in the same arena.
 */
#ifndef SNUG_PROGRAM_PROGRAM_H
#define SNUG_PROGRAM_PROGRAM_H

#include "device/device.h"
#include "graph/slice.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What bytes are for, as reports name them. */
enum memory_class {
    MEMORY_WEIGHTS, /* that are trained, and constants */
    MEMORY_FROZEN,  /* that are not */
    MEMORY_MASTERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_ACTIVATIONS,
    MEMORY_RECOMPUTE,
    MEMORY_LOGITS,
    MEMORY_WORKSPACE,
    MEMORY_STAGING,
    MEMORY_CLASS_COUNT
};
const char *memory_class_name(enum memory_class c);

/* ---- storage: what outlives a step ----------------------------------------------------------- */

struct storage_entry {
    const char *name;
    uint64_t hash; /* of the name: a model has many, and each is looked for */
    enum memory_class kind;
    enum tier tier;
    int64_t n_bytes, offset;
};

struct storage {
    struct pool pool;
    VEC(struct storage_entry) entries;
    int64_t n_bytes[TIER_COUNT]; /* end of the last entry of each tier */
    int32_t *slots;              /* [n_slots], a power of two: entries by their hash; -1: none */
    size_t n_slots;
};

void storage_init(struct storage *s);
void storage_release(struct storage *s);
/* The entry of that name, added at the end of its tier when new. The same name with other bytes or
 * tier is an internal error. *index is stable. */
enum status storage_need(struct storage *s, const char *name, enum memory_class kind,
                         enum tier tier, int64_t n_bytes, int32_t *index) MUST_CHECK;
const struct storage_entry *storage_find(const struct storage *s, const char *name);

/* ---- programs -------------------------------------------------------------------------------- */

enum access { ACCESS_NONE, ACCESS_READ, ACCESS_WRITE };

struct operand {
    int32_t buffer; /* -1: absent */
    enum access access;
    enum tier tier;
    value_id value;   /* what the bytes hold (a view root), or VALUE_NONE for workspace */
    int64_t value_at; /* the first byte of the value that they are; beyond 0 in slices and copies of
                         them */
    int64_t offset, n_bytes;
};

enum instr_kind { INSTR_COMPUTE, INSTR_COPY, INSTR_RECORD, INSTR_WAIT };

struct instr {
    enum instr_kind kind;
    enum queue queue;
    node_id node;                /* COMPUTE */
    struct slice slice;          /* COMPUTE: the part of the node; several make the whole */
    const struct kernel *kernel; /* COMPUTE */
    uint64_t call;               /* COMPUTE: call_hash, where emission knew it; 0: it did not */
    bool recompute;              /* COMPUTE: the node's second run */
    bool has_workspace;          /* COMPUTE: the last operand */
    int event;                   /* RECORD, WAIT */
    /* COMPUTE: inputs, outputs, workspace; COPY: source, destination */
    int32_t first_operand, n_operands;
};

/* A run of bytes with a lifetime. Instruction indices are over the whole program. */
struct buffer {
    const char *name;
    enum memory_class kind;
    enum tier tier;
    int64_t n_bytes, offset;
    int32_t first, last; /* closed; whole program for storage and carried values */
    int32_t storage;     /* index of its storage entry, or -1 */
    int32_t merged_into; /* in-place reuse: shares that buffer's memory; -1: own */
    value_id value;      /* root value it was made for, or VALUE_NONE */
    int64_t value_at;    /* the first byte of the value that it has room for */
    bool carried;        /* home of a root that lives from section to section of one step */
};

/* Where in its buffer's tier an operand is. */
static inline int64_t operand_offset(const struct buffer *b, const struct operand *o)
{
    return b->offset + (o->value_at - b->value_at);
}

struct section {
    const char *name;
    int32_t first, n; /* instructions */
};

/* Host-side ends of inputs and outputs. */
struct port {
    const char *name;
    value_id value;
    int64_t n_bytes, offset; /* in the host arena */
    int32_t buffer;          /* the host buffer */
};

struct program {
    struct pool pool;
    const char *name;
    const struct graph *graph; /* borrowed; outlives the program */
    VEC(struct instr) instrs;
    VEC(struct operand) operands;
    VEC(struct buffer) buffers;
    VEC(struct section) sections;
    VEC(struct port) inputs;
    VEC(struct port) outputs;
    struct kernel_env env; /* of the device it was emitted for: what workspaces were sized by */
    int n_events;
    int64_t n_bytes[TIER_COUNT];     /* predicted high-water mark of each tier, storage included */
    int64_t lower_bound[TIER_COUNT]; /* largest sum of live bytes */
    int64_t n_storage[TIER_COUNT];   /* bytes of storage this program was laid out above */
    const char *layout_method[TIER_COUNT];
    int64_t layout_work; /* comparisons that placing it took */
    uint64_t plan;       /* plan_hash of what it was emitted for */
};

/* Emits and lays out. Storage entries are added to `storage`; call program_place() once every
 * program of the run has been emitted, since transients begin where storage ends. */
enum status program_emit(struct program **out, const char *name, const struct graph *g,
                         const struct plan *plan, const struct device *device,
                         struct storage *storage) MUST_CHECK;
/* Its storage entries are added to another `storage` than those it was emitted with: it is placed
 * above that then. */
enum status program_need_storage(struct program *p, struct storage *storage) MUST_CHECK;
/* room: bytes of each tier that there are for it, which it fills where that saves work; NULL: as
 * few as it takes. */
enum status program_place(struct program *p, const struct storage *storage,
                          const int64_t room[TIER_COUNT]) MUST_CHECK;
/* Sizes without addresses: no layout takes less, and most come within a thousandth of it. What a
 * search asks for before it has a program placed. */
enum status program_bound(struct program *p, const struct storage *storage) MUST_CHECK;
void program_free(struct program *p);

/* Does the device call the node (op_def.by_rows) with one kernel, be it on all rows or on some?
 * Only then can a plan have it in slices: kernels differ in their last bits. */
bool program_makes_rows(const struct graph *g, node_id k, const struct device *device);

const struct section *program_section(const struct program *p, const char *name); /* or NULL */
/* How often a step of n_micro micro-batches runs a section. */
int64_t section_runs(const struct program *p, const struct section *s, int64_t n_micro);
/* What a section is for that such steps do not run ("first step"); NULL: they do. */
const char *section_occasion(const struct program *p, const struct section *s, int64_t n_micro);
const struct port *program_input(const struct program *p, const char *name);  /* or NULL */
const struct port *program_output(const struct program *p, const char *name); /* or NULL */

/* Invariant 2: walks the program as the queues would run it and proves that every instruction is a
 * call the graph has, that every read finds the value it expects, that live buffers never overlap,
 * that uses across queues are ordered, that storage ends each section as the graph says, and that
 * the high-water marks are as predicted. Trusts nothing in the program: a program read from a file
 * can be checked. ERR_PROGRAM says what went wrong and where. */
enum status program_check(const struct program *p, const struct storage *storage) MUST_CHECK;

/* Text form: one line per instruction with operands as tier+offset:bytes; and back, over the same
 * graph. print(parse(print(p))) == print(p). */
enum status program_print(const struct program *p, struct str *out) MUST_CHECK;
enum status program_parse(struct program **out, const char *text, const struct graph *g,
                          const struct device *device) MUST_CHECK;

/* Appends what an instruction does: "linear layers.3.up.weight", "copy layers.3.up.weight". */
void instr_add_text(const struct program *p, const struct instr *i, struct str *out);
/* What a computation is part of ("forward", "backward", "recompute", "update", "begin"); of
 * anything else the queue it is on. */
const char *instr_part(const struct program *p, const struct instr *i);

/* ---- what it costs --------------------------------------------------------------------------- */

struct program_cost {
    double flops, bytes;    /* of compute instructions */
    double recompute_flops; /* part of flops */
    double copy_bytes;
    double time_s; /* by the device's rates */
};
void program_cost(const struct program *p, int32_t first, int32_t n, const struct device *device,
                  struct program_cost *out);

/* Bytes by class alive at an instruction, in one tier (storage included). */
void program_memory_at(const struct program *p, const struct storage *storage, enum tier tier,
                       int32_t instr, int64_t by_class[MEMORY_CLASS_COUNT]);
/* The instruction at which the most bytes of the tier are alive. */
int32_t program_peak(const struct program *p, enum tier tier);

#ifdef __cplusplus
}
#endif
#endif
