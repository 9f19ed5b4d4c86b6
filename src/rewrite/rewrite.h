/* rewrite.h: nodes that fit together become one.
 *
 * Fused ops are ordinary ops; a rule (rules.def) is where they come from: it looks at one node and
 * those around it, and rewrites them when the result is the same up to rounding. The graph is the
 * same for all devices and all budgets.
 */
#ifndef SNUG_REWRITE_REWRITE_H
#define SNUG_REWRITE_REWRITE_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rewrite_stage {
    REWRITE_FORWARD,  /* a model's graph, before autodiff */
    REWRITE_GRADIENT, /* after autodiff and optimizer */
};

/* Applies the rules of a stage wherever they fit. What disappears is the result of a linear, a
 * batch norm or a norm's gradient with one reader in the graph; to be read from outside as well, it
 * must be an output of the graph before this. */
enum status rewrite_apply(struct graph *g, enum rewrite_stage stage) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
