/* losses.h: the losses of a graph: their sums, and what they come to.
 *
 * A graph gives sums (of squared errors, of cross-entropies, of what counts), which can be added
 * over micro-steps and batches; a mean comes only at the end. Training minimises
 *
 *     sum over losses of  weight * sum  /  count of the first loss
 *
 * whose gradient is a sum too, up to the one division. A loss with a count of its own is reported
 * as its own mean; in what is minimised its weight has to carry the ratio.
 */
#ifndef SNUG_MODEL_LOSSES_H
#define SNUG_MODEL_LOSSES_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds a number (one element) for the host; *its place* in m->sums is returned. */
int losses_add_sum(struct builder *b, struct model_graph *m, const char *name, value_id value);
/* Adds a loss: `name` is that of its sum, `count` the place of its count in m->sums. */
void losses_add(struct builder *b, struct model_graph *m, const char *name, double weight,
                value_id sum, int count);

/* The place of the count that gradients are divided by. */
int losses_count(const struct model_graph *m);

/* What training minimises, and loss i alone, from the sums as the host read them. */
double losses_total(const struct model_graph *m, const double *sums);
double losses_mean(const struct model_graph *m, int i, const double *sums);
/* Whether a loss is told under its own name beside the total: not where it is the only one, nor
 * one that is called "loss", which is the total. */
bool losses_is_told(const struct model_graph *m, int i);
const char *losses_name(const struct model_graph *m, int i);

#ifdef __cplusplus
}
#endif
#endif
