/* slice.h: a call on some of its elements.
 *
 * An op that works on its elements by themselves (op_def.granule) can be called on a contiguous run
 * of them, in row-major order, and gives there the bits of the call on all. So a tensor that is too
 * large to be in one place is worked on piece by piece.
 *
 *     elements   │ granule │ granule │ granule │ gra│
 *     slices     │ first, n          │ first, n     │
 *
 * A slice begins at a granule and ends at one, or with the tensor. Of an op that makes its rows by
 * themselves (op_def.by_rows) a row is the granule, and the slice of a matrix is a matrix; all else
 * becomes a line of elements.
 */
#ifndef SNUG_GRAPH_SLICE_H
#define SNUG_GRAPH_SLICE_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n = 0: all there are, which is what an op without granule takes. */
struct slice {
    int64_t first, n;
};

/* A run of bytes of one tensor. */
struct byte_range {
    int64_t at, n_bytes;
};

/* Elements of a node that slices divide; 0: its op can only be called as a whole. */
int64_t node_sliceable(const struct graph *g, const struct node *n);
/* What slices of the node are counted in, in elements; 0: it can only be called as a whole. */
int64_t node_granule(const struct graph *g, const struct node *n);
/* Does the node read input i in slices, element for element of its own? */
bool node_reads_slices(const struct graph *g, const struct node *n, int i);
/* Is what the node makes, by rows, many times what it makes it from? Then it is cheap to make, and
 * need not be kept. */
bool node_expands(const struct graph *g, const struct node *n);
/* Whether the node can be called so: its op has a granule, and the slice keeps to it. */
bool slice_is_valid(const struct graph *g, const struct node *n, struct slice s);
/* What the slice is of one operand: inputs come first, then outputs. */
struct byte_range slice_bytes(const struct graph *g, const struct node *n, struct slice s,
                              int operand);

/* The same as a tensor (data = NULL); dtype NONE: an input that is absent. */
struct tensor slice_tensor(const struct graph *g, const struct node *n, struct slice s,
                           int operand);

/* node_call of a slice: tensors are those of the slice, first_element is set. */
void node_call_slice(const struct graph *g, const struct node *n, struct slice s, struct tensor *in,
                     struct tensor *out, struct op_call *call);

#ifdef __cplusplus
}
#endif
#endif
