/* op.h: what the engine knows about an op, and nothing about any op in particular.
 *
 * An op is one row in ops.def, one file src/ops/<op>.c that defines `op_def_<op>`, and kernels in
 * src/device/<device>/<family>.c. Everything that asks "what does this op do" asks its op_def; no
 * code elsewhere switches on op ids.
 */
#ifndef SNUG_GRAPH_OP_H
#define SNUG_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/status.h"
#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum op_id {
#define OP(name, family, cpu, cuda) OP_##name,
#include "graph/ops.def"
#undef OP
    OP_COUNT
};

/* ---- attributes ------------------------------------------------------------------------- */

enum attr_type { ATTR_INT, ATTR_FLOAT, ATTR_BOOL, ATTR_DTYPE, ATTR_INTS };

enum { MAX_ATTR_INTS = 8 };

struct attr {
    int64_t i;                   /* INT, BOOL, DTYPE */
    double f;                    /* FLOAT */
    int n_ints;                  /* INTS */
    int64_t ints[MAX_ATTR_INTS]; /* INTS */
};

/* One attribute of an op: its name, type, default and range drive printing, parsing, checking. */
struct attr_def {
    const char *name;
    enum attr_type type;
    struct attr value; /* the default */
    bool required;     /* no default: building a node without it is an error */
};

/* ---- a call: op, attributes, tensors ------------------------------------------------------ */

/* No op has more outputs; inputs may be many (concat). */
enum { MAX_OUTPUTS = 8 };

/* What inference, cost functions and kernels see: no graph, no plan. Inputs may be absent
 * (dtype NONE). During inference the data pointers are NULL. */
struct op_call {
    enum op_id op;
    int n_in, n_out;
    const struct tensor *in;
    struct tensor *out;
    const struct attr *attrs; /* in the order of op_def.attrs */
    /* Of a slice (graph/slice.h): which element of the whole its first one is; else 0. What a
     * kernel draws for an element depends on its place in the whole. */
    int64_t first_element;
};

/* ---- aliasing ------------------------------------------------------------------------------- */

enum alias_kind {
    ALIAS_NONE,
    ALIAS_VIEW,   /* the output IS the input's memory, unchanged: no instruction runs */
    ALIAS_UPDATE, /* the output overwrites the input in place; the input must not be read later */
    ALIAS_MAY,    /* the output may take the input's memory if the input dies here */
};

/* Applies only when the input is present. End the list with {ALIAS_NONE}. */
struct alias_rule {
    enum alias_kind kind;
    int out, in;
};

enum recompute_class {
    RECOMPUTE_NORMAL,
    RECOMPUTE_CHEAP,  /* memory-bound: worth dropping and making again */
    RECOMPUTE_NEVER,  /* has effects or reads what changes (updates, fills) */
    RECOMPUTE_ALWAYS, /* of storage alone, which holds the same in less: never kept for the backward
                         pass, and made for each of its readers there */
};

/* Parts of a block, as people name them. */
enum module_kind { MODULE_NONE, MODULE_ATTENTION, MODULE_MLP, MODULE_NORM, MODULE_COUNT };

struct builder;
struct node;
typedef int32_t value_id;

/* Shapes, dtypes and value ranges the law tests run an op on. Text form, inputs separated by
 * commas, then attributes:
 *
 *     "f32[10,4], i32[2,3]~10, _ {axis=1}"
 *
 * `~N`: integers uniform in [0, N); `~-1:N`: in [-1, N); `+`: positive floats (0.5 .. 1.5);
 * `_`: an absent optional input; `=C`: all elements equal C. Plain floats are normal draws.
 * The laws rerun f32 samples in f64, bf16 and f16. */
struct op_sample {
    const char *text;
    double tolerance; /* fast kernel against reference in f32, relative; 0 means 1e-5 */
};

/* What the integers of an input are like: timings and law tests fill them by this. */
enum index_kind {
    INDEX_ANY,         /* each below a limit */
    INDEX_OFFSETS,     /* rising from 0 to the limit: where groups of rows begin, and their end */
    INDEX_PERMUTATION, /* of the places of the input itself */
    INDEX_POSITIONS,   /* places in samples of `limit` tokens: 0, 1, 2, ... and again */
};

struct index_rule {
    enum index_kind kind;
    int64_t limit;
};

struct op_def {
    const char *name;
    const char *synopsis; /* one line of mathematics */

    int min_in, max_in; /* trailing inputs may be left out, middle ones absent; max -1: variadic */
    int n_out;

    const struct attr_def *attrs;
    int n_attrs;

    /* Sets dtype and shape of every output, or FAILs with ERR_SHAPE and a message. */
    enum status (*infer)(const struct op_call *c);

    /* Builds the nodes that compute gradients. d_out[i] is VALUE_NONE where no gradient arrives;
     * wants[i] says whether input i's gradient is needed; sets d_in[i] (preset to VALUE_NONE).
     * NULL with no_grad = true: not differentiable (updates, integer ops). */
    enum status (*grad)(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in);
    bool no_grad;
    /* The gradient of output 0 is that of input 0 as it is, by definition: what the op does is a
     * staircase, whose slope says nothing. */
    bool straight_through;
    uint32_t no_grad_inputs; /* bit i: input i takes no gradient (indices, masks, random state) */
    /* Bit i: input i, a vector of parameters, may be f32 beside 16-bit activations, at no cost:
     * every kernel works with it in f32 anyway. */
    uint32_t f32_inputs;

    /* Bit o: output o, where it is bytes, holds codes of numbers (graph/format.h). Rounding may
     * turn a code into its neighbour, so kernels need not agree on it to the last one. */
    uint32_t coded_outputs;

    const struct alias_rule *aliases; /* NULL: none */

    /* Optional input `accumulate_in` is added into output `accumulate_out`, in place (an
     * ALIAS_UPDATE rule says so too). Lets gradient sums fuse into the op. -1: cannot. Use
     * OP_NO_ACCUMULATE. */
    int accumulate_in, accumulate_out;

    /* A gradient op that yields its forward op's outputs on the way: its first outputs equal those
     * of this op on the same first inputs, so the forward node need not run. NULL: it does not. */
    const struct op_def *gives_outputs_of;

    /* Every element is worked on by itself, or together with its neighbours in runs of `granule`
     * elements, counted from the first: a call on some of these runs gives there the bits of the
     * whole (graph/slice.h). Then input 0 has the elements, and every other tensor of the call has
     * as many, or one for each run, or is one of `whole_inputs` (bit i: input i), which every slice
     * reads whole. 0: it can only be called as a whole. */
    int64_t granule;
    uint32_t whole_inputs;
    /* Instead of a granule: every row of output 0 (what one index of its first axis leaves) is made
     * by itself. Its elements are what slices divide, into whole rows; inputs are of its shape or
     * among `whole_inputs`. A kernel that gives a part of the rows other bits than the whole gives
     * them declines the part. */
    bool by_rows;

    /* What its inputs hold does not matter: outputs that lie on them are only overwritten. */
    bool ignores_inputs;

    enum recompute_class recompute;
    enum module_kind module; /* that its node stands for; MODULE_NONE: its neighbours say */
    double (*flops)(const struct op_call *c); /* NULL: one per output element */
    /* Integer inputs are indices below this: how far those of a timing may spread. NULL: only 0 is
     * sure to be valid. */
    int64_t (*index_limit)(const struct op_call *c);
    /* Bit i: input i holds offsets of groups of the rows of input 0, or a permutation, or places of
     * tokens in their samples, which lie side by side in its rows. */
    uint32_t offset_inputs, permutation_inputs, position_inputs;
    bool workspace_is_logits; /* names the workspace in memory reports */
    bool nondeterministic;

    const struct op_sample *samples;
    int n_samples;
    const char *const *rejects; /* sample texts that infer must refuse */
    int n_rejects;
};

#define OP_NO_ACCUMULATE .accumulate_in = -1, .accumulate_out = -1

extern const struct op_def *const op_table[OP_COUNT];

static inline const struct op_def *op_get(enum op_id op)
{
    return op_table[op];
}
bool op_find(const char *name, enum op_id *op);

/* How integers of input i are to be filled. */
struct index_rule call_index_rule(const struct op_call *c, int i);
/* Element i of n by the rule; `random` decides where the rule leaves it open. Permutations are
 * their own inverse. */
static inline HOST_DEVICE int64_t index_value(struct index_rule r, int64_t i, int64_t n,
                                              uint64_t random)
{
    uint64_t below = r.limit > 1 ? (uint64_t)r.limit : 1;
    if (r.kind == INDEX_OFFSETS)
        return n > 1 ? (int64_t)((double)r.limit * (double)i / (double)(n - 1)) : 0;
    if (r.kind == INDEX_POSITIONS)
        return (int64_t)((uint64_t)i % below);
    return r.kind == INDEX_PERMUTATION ? n - 1 - i : (int64_t)(random % below);
}

/* Attribute access inside an op's own file: by position in its attrs list. */
static inline int64_t call_int(const struct op_call *c, int i)
{
    return c->attrs[i].i;
}
static inline double call_float(const struct op_call *c, int i)
{
    return c->attrs[i].f;
}
static inline bool call_bool(const struct op_call *c, int i)
{
    return c->attrs[i].i != 0;
}

/* Is input i one of a mask of op_def? Inputs may be many (concat); masks speak of the first. */
static inline bool mask_has(uint32_t mask, int i)
{
    return i < 32 && (mask >> i & 1u);
}

/* True when input i was given. */
static inline bool call_has(const struct op_call *c, int i)
{
    return i < c->n_in && c->in[i].dtype != DTYPE_NONE;
}

/* Cost of a call: FLOPs by the op's rule, bytes as each input read and each output written once. */
double call_flops(const struct op_call *c);
double call_bytes(const struct op_call *c);

#ifdef __cplusplus
}
#endif
#endif
