/* rewrite_internal.h: what the rules share: questions about the nodes around one, and the few
 * changes a rule makes. */
#ifndef SNUG_REWRITE_REWRITE_INTERNAL_H
#define SNUG_REWRITE_REWRITE_INTERNAL_H

#include "rewrite/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A graph while rules are applied to it. Node ids stay as they are until the end. */
struct rewriting {
    struct graph *g;
    int32_t *n_readers; /* per value: inputs of nodes that are it, outputs of the graph */
    bool *dropped;      /* per node */
};

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

/* ---- changes ------------------------------------------------------------------------------ */

/* Input i of node k becomes v (VALUE_NONE: absent). */
enum status rewrite_set_input(struct rewriting *r, node_id k, int i, value_id v) MUST_CHECK;

/* Node `absorbed` goes; its one output is the first output of node k from now on, in place of what
 * that was. */
void rewrite_absorb(struct rewriting *r, node_id k, node_id absorbed);

#ifdef __cplusplus
}
#endif
#endif
