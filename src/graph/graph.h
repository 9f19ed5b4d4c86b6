/* graph.h: a training step as a graph.
 *
 * Values and nodes are numbered; a value has one producer (SSA) or none (parameters, inputs,
 * states, constants, accumulators). Nodes are kept in an order that is topological by construction:
 * a node may only read values that exist when it is added. Everything lives in the graph's pool.
 *
 * In-place updates stay in SSA: `adamw` reads parameter p and yields p', which an ALIAS_UPDATE rule
 * places in p's memory. The *root* of a value is the value whose memory it shares (through views
 * and updates); a root without a producer names storage that outlives a step or is filled from
 * outside.
 */
#ifndef SNUG_GRAPH_GRAPH_H
#define SNUG_GRAPH_GRAPH_H

#include "base/pool.h"
#include "base/str.h"
#include "base/vec.h"
#include "graph/op.h"
#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t node_id;
#define VALUE_NONE ((value_id)-1)
#define NODE_NONE  ((node_id)-1)
#define BLOCK_NONE (-1)

enum role {
    ROLE_ACTIVATION, /* computed in a step */
    ROLE_GRADIENT,   /* of a parameter; without a producer: an accumulator over micro-steps */
    ROLE_INPUT,      /* filled from the host before a section runs */
    ROLE_PARAMETER,
    ROLE_FROZEN, /* a parameter that is not trained: nothing in a step writes it */
    ROLE_MASTER, /* full-precision copy of a parameter */
    ROLE_STATE,  /* optimizer state, running statistics, caches */
    ROLE_CONSTANT,
    ROLE_METRIC, /* loss sums and counts carried over the micro-steps of a step */
    ROLE_COUNT
};

const char *role_name(enum role r);
bool role_parse(const char *text, enum role *r);
/* Lives from program start to end (parameters, frozen or not, masters, states, constants). */
bool role_is_persistent(enum role r);
bool role_is_parameter(enum role r); /* trained or frozen */

/* Which part of a step a node belongs to. BEGIN runs once (clears accumulators), FORWARD and
 * BACKWARD once per micro-step, NORM (of the gradients, and what they are scaled by) and UPDATE (of
 * parameters and states) once. */
enum pass { PASS_BEGIN, PASS_FORWARD, PASS_BACKWARD, PASS_NORM, PASS_UPDATE, PASS_COUNT };
const char *pass_name(enum pass p);
bool pass_parse(const char *text, enum pass *p);

struct value {
    const char *name; /* "" when unnamed */
    enum dtype dtype;
    struct shape shape;
    enum role role;
    node_id producer; /* NODE_NONE: comes from outside */
    int output;       /* which output of the producer */
    const void *data; /* elements of a constant, or that a state begins with; NULL: none, zeros */
};

struct node {
    enum op_id op;
    enum pass pass;
    int block; /* index of the repeated block (layer) it belongs to, or BLOCK_NONE */
    int micro; /* FORWARD, BACKWARD: which micro-batch of a group it works on (plan/group.h) */
    int n_in, n_out;
    value_id *in; /* VALUE_NONE: an absent optional input */
    value_id *out;
    struct attr *attrs;
};

struct graph_output {
    const char *name;
    value_id value;
};

struct graph {
    struct pool pool;
    const char *name;
    VEC(struct value) values;
    VEC(struct node) nodes;
    VEC(struct graph_output) outputs; /* values the host reads when the pass is done */
};

enum status graph_new(struct graph **out, const char *name) MUST_CHECK;
void graph_free(struct graph *g);

/* A value without a producer. data: of constants and states only, copied. */
enum status graph_add_value(struct graph *g, const char *name, enum role role, enum dtype dtype,
                            struct shape shape, const void *data, value_id *out) MUST_CHECK;

/* Appends a node: checks arity and attributes, runs inference, creates its output values. attrs has
 * one entry per attr_def of the op. Output ids land in the node (graph_node(g, id)->out). */
enum status graph_add_node(struct graph *g, enum op_id op, const value_id *in, int n_in,
                           const struct attr *attrs, enum pass pass, int block,
                           node_id *out) MUST_CHECK;

enum status graph_add_output(struct graph *g, const char *name, value_id v) MUST_CHECK;
value_id graph_find_output(const struct graph *g, const char *name); /* VALUE_NONE: none */
value_id graph_find_value(const struct graph *g, const char *name);

static inline struct value *graph_value(const struct graph *g, value_id v)
{
    return &g->values.items[v];
}
static inline struct node *graph_node(const struct graph *g, node_id n)
{
    return &g->nodes.items[n];
}

struct tensor value_tensor(const struct graph *g, value_id v); /* data = NULL */
int64_t value_bytes(const struct graph *g, value_id v);

/* Fills a call over caller-provided arrays of n_in and n_out tensors (data NULL). */
void node_call(const struct graph *g, const struct node *n, struct tensor *in, struct tensor *out,
               struct op_call *call);

double node_flops(const struct graph *g, const struct node *n); /* 0: of very many inputs */

/* The rule (VIEW or UPDATE) that places output i of n into an input's memory, or NULL. */
const struct alias_rule *node_find_alias(const struct node *n, int output);
static inline const struct alias_rule *node_alias(const struct node *n, int output)
{
    return op_get(n->op)->aliases ? node_find_alias(n, output) : NULL; /* most ops have none */
}
/* The value whose memory v shares through VIEW and UPDATE rules (v itself when none). */
value_id value_root(const struct graph *g, value_id v);
/* The same of all values, in one walk: chains of updates are long where micro-batches are many. */
void graph_find_roots(const struct graph *g, value_id *root);
/* Through views only. */
value_id value_view_root(const struct graph *g, value_id v);

/* Runs inference again over all nodes in order (after dtypes of roots were changed). */
enum status graph_reinfer(struct graph *g) MUST_CHECK;

/* Rebuilds the node list in the given order (a permutation or a subset of node ids), renumbering
 * producers. Values of dropped nodes stay in the table, unproduced and unused. */
enum status graph_reorder(struct graph *g, const node_id *order, size_t n) MUST_CHECK;

/* Removes nodes none of whose outputs is needed by an output of the graph or by an update. */
enum status graph_eliminate_dead(struct graph *g) MUST_CHECK;

/* Every structural invariant: operands exist before use, shapes as inferred, updates not read after
 * being overwritten, producers consistent. Runs after every pass in debug builds and in tests. */
enum status graph_check(const struct graph *g) MUST_CHECK;

/* Text form, and back. print(parse(print(g))) == print(g). */
enum status graph_print(const struct graph *g, struct str *out) MUST_CHECK;
enum status graph_parse(struct graph **out, const char *text) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
