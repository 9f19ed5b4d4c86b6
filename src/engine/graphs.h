/* graphs.h: from a task to the graph of a stage.
 *
 *     task -> rewrite -> autodiff -> precision -> optimizer -> rewrite
 *
 * A training graph goes all the way; the others stop where there is nothing to differentiate.
 */
#ifndef SNUG_ENGINE_GRAPHS_H
#define SNUG_ENGINE_GRAPHS_H

#include "engine/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills purpose, graph, io and n_micro of a stage that is all zero; on failure the graph, if there
 * is one, is still the stage's to free. */
enum status stage_build(struct stage *s, const struct task *task, const struct stage_request *r,
                        const struct numerics *n) MUST_CHECK;

/* The name of the input that seeds the backward pass: 1 / units of a step. */
#define LOSS_SEED "loss_seed"

#ifdef __cplusplus
}
#endif
#endif
