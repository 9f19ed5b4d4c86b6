/* eval.h: runs a graph at once on the CPU, without plan or program: what tests compare with.
 *
 * Every value has memory of its own, 64-byte aligned, between redzones that are checked after each
 * node. Views share their root's memory; updates work in place. Fresh outputs and workspace are
 * filled with a poison byte before each node runs.
 */
#ifndef SNUG_TESTS_EVAL_H
#define SNUG_TESTS_EVAL_H

#include "device/kernel.h"
#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct eval_options {
    const char *kernel; /* only kernels of this name ("reference"); NULL: the first that accepts */
    int n_threads;      /* 0 means 2 */
    uint8_t poison;
    /* Bit r: rule r of the op's alias list, when it is an ALIAS_MAY whose output fits, places the
     * output in the input's memory. For graphs of one node, whose inputs die there. */
    uint32_t overlays;
};

struct eval;

/* Allocates every value; constants are copied in, the rest is poison. The graph is borrowed. */
enum status eval_new(struct eval **out, const struct graph *g,
                     const struct eval_options *options) MUST_CHECK;
void eval_free(struct eval *e);

/* The value with its memory, to fill or to read. */
struct tensor eval_tensor(const struct eval *e, value_id v);

/* Runs all nodes in order; ERR_INTERNAL when a kernel wrote outside its outputs or workspace. */
enum status eval_run(struct eval *e) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
