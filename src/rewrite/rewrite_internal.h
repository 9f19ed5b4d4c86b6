/* rewrite_internal.h: what the rules share: questions about the nodes around one, and the few
 * changes a rule makes. */
#ifndef SNUG_REWRITE_REWRITE_INTERNAL_H
#define SNUG_REWRITE_REWRITE_INTERNAL_H

#include "rewrite/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A graph while a rule is applied to it. Node ids stay as they are until rewriting_settle. */
struct rewriting {
    struct graph *g;
    VEC(int32_t) n_readers; /* per value: inputs of nodes that are it, outputs of the graph */
    bool *dropped;          /* per node */
    bool *moved;            /* per node: it stands behind another now */
    node_id *follower;      /* per node: what was moved right behind it, or NODE_NONE */
};

/* Needs rewriting_release also when it fails. */
enum status rewriting_init(struct rewriting *r, struct graph *g) MUST_CHECK;
/* Readers anew, after a change. */
enum status rewriting_count_readers(struct rewriting *r) MUST_CHECK;
/* Nodes dropped are gone and nodes moved are where they belong: new ids, nothing left to do. */
enum status rewriting_settle(struct rewriting *r) MUST_CHECK;
void rewriting_release(struct rewriting *r);

/* A rule: rewrites what begins at node k where it fits, and says whether it did. */
typedef enum status rewrite_rule(struct rewriting *r, node_id k, bool *applied);

#define RULE(name, stage, why) rewrite_rule rewrite_##name;
#include "rewrite/rules.def"
#undef RULE

/* ---- questions ---------------------------------------------------------------------------- */

/* The node that makes v as its first output, when it runs `op`, in the pass and block of `reader`,
 * which alone reads v; NODE_NONE when it is not so. */
node_id rewrite_sole_source(const struct rewriting *r, value_id v, enum op_id op, node_id reader);

bool rewrite_has_input(const struct node *n, int i);
bool rewrite_same_type(const struct graph *g, value_id a, value_id b);

/* Can node k read v: does it exist by then? */
bool rewrite_exists_before(const struct graph *g, value_id v, node_id k);
/* Is v's memory overwritten by a node in [first, last)? */
bool rewrite_overwritten(const struct graph *g, value_id v, node_id first, node_id last);
/* Can node a stand right behind node k, a later one? Nobody up to there reads what it makes or
 * overwrites what it reads. */
bool rewrite_can_move(const struct rewriting *r, node_id a, node_id k);

/* ---- changes ------------------------------------------------------------------------------ */

/* Input i of node k becomes v (VALUE_NONE: absent). */
enum status rewrite_set_input(struct rewriting *r, node_id k, int i, value_id v) MUST_CHECK;

/* Node k runs another op of the same inputs and outputs, with all of its attributes. */
enum status rewrite_set_op(struct rewriting *r, node_id k, enum op_id op,
                           const struct attr *attrs) MUST_CHECK;

/* Node `absorbed` goes; its one output is the first output of node k from now on, in place of what
 * that was. */
void rewrite_absorb(struct rewriting *r, node_id k, node_id absorbed);

/* Node k gets one more output, of the type of `like`. */
enum status rewrite_add_output(struct rewriting *r, node_id k, value_id like,
                               value_id *out) MUST_CHECK;

/* Node a goes right behind node k, a later one, and behind what was moved there before; what was
 * moved behind a goes with it. Once for each node between two rewriting_settle. */
void rewrite_move_behind(struct rewriting *r, node_id a, node_id k);

#ifdef __cplusplus
}
#endif
#endif
