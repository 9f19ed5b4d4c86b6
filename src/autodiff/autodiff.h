/* autodiff.h: reverse mode over a graph. */
#ifndef SNUG_AUTODIFF_AUTODIFF_H
#define SNUG_AUTODIFF_AUTODIFF_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A value to differentiate, and the gradient that arrives at it (same shape). */
struct autodiff_root {
    value_id loss, seed;
};

/* Appends the nodes (PASS_BACKWARD, in the block of the forward node they differentiate) that
 * compute the sum over roots of d(loss)/d(wanted[i]) times the seed. grads[i] is the gradient of
 * wanted[i], with role GRADIENT, or VALUE_NONE where no loss depends on it. Contributions are added
 * in the order of the backward pass, so the sum is reproducible. */
enum status autodiff_roots(struct graph *g, const struct autodiff_root *roots, size_t n_roots,
                           const value_id *wanted, size_t n_wanted, value_id *grads) MUST_CHECK;

/* Gradients that are cheap instead of right: in the first n_blocks blocks nothing goes through an
 * op that is not memory-bound but what it hands on as it is, along the residual, and the gradients
 * of wanted values that it reads. Where nothing arrives there is VALUE_NONE. Nodes that nobody
 * reads are left for graph_eliminate_dead. */
enum status autodiff_shortened(struct graph *g, const struct autodiff_root *roots, size_t n_roots,
                               const value_id *wanted, size_t n_wanted, int n_blocks,
                               value_id *grads) MUST_CHECK;

/* The same as autodiff_roots of one loss. */
enum status autodiff(struct graph *g, value_id loss, value_id seed, const value_id *wanted,
                     size_t n_wanted, value_id *grads) MUST_CHECK;

/* Gradient ops that compute their forward op's outputs anyway (op_def.gives_outputs_of) take over
 * its readers; the forward node is then dead. adopted_value: what replaces v (v itself when
 * nothing). */
enum status adopt_forward(struct graph *g) MUST_CHECK;
value_id adopted_value(const struct graph *g, value_id v);

/* Sums that feed straight into an op able to accumulate are folded into it:
 * add(a, op(...)) and accumulate(acc, op(...)) become op(..., acc). */
enum status fuse_accumulation(struct graph *g) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
