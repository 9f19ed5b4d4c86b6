/* random_graph.h: training graphs nobody would write, and plans nobody would choose.
 *
 * A pure function of the seed: a random DAG of layers, moves, reductions and sums with shared
 * parameters and blocks, its gradients, and an optimizer. Fails the test on errors. */
#ifndef SNUG_TESTS_RANDOM_GRAPH_H
#define SNUG_TESTS_RANDOM_GRAPH_H

#include "base/rng.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct random_graph {
    struct graph *g;
    int64_t n_micro;
};

void random_graph_init(struct random_graph *r, uint64_t seed);
void random_graph_release(struct random_graph *r);

/* Any treatment the plan allows for each value, any home for each root. */
void random_plan(struct plan *p, const struct graph *g, uint64_t seed);
/* Half of what a plan has on the host goes to disk. */
void random_plan_disk(struct plan *p, const struct graph *g, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
