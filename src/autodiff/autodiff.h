/* autodiff.h: reverse mode over a graph. */
#ifndef SNUG_AUTODIFF_AUTODIFF_H
#define SNUG_AUTODIFF_AUTODIFF_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the nodes (PASS_BACKWARD, in the block of the forward node they differentiate) that
 * compute d(loss)/d(wanted[i]) given `seed` = the gradient arriving at `loss` (same shape).
 * grads[i] is the gradient of wanted[i], with role GRADIENT, or VALUE_NONE where loss does not
 * depend on it. Contributions are added in the order of the backward pass, so the sum is
 * reproducible. */
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
