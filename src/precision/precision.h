/* precision.h: a dtype for each role.
 *
 * Models are built in f32; this stage rewrites the graph to the asked-for storage and runs
 * inference again, so that activations follow the weights they meet. Sums, statistics and losses
 * stay in f32: the ops' inference rules say which those are.
 *
 * Beside f32 masters, parameters that every op that reads them takes in f32 (op_def.f32_inputs:
 * weights of norms, the bias of a GELU) stay in f32 too. Such a parameter is its own master: two
 * bytes less than a 16-bit copy and a master, and it is never rounded.
 */
#ifndef SNUG_PRECISION_PRECISION_H
#define SNUG_PRECISION_PRECISION_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct precision {
    enum dtype weights;   /* and activations; some parameters stay f32, see above */
    enum dtype gradients; /* of parameters */
    enum dtype states;    /* optimizer moments */
    bool masters;         /* f32 copies that the updates act on */
    bool loss_scaling;    /* f16 holds no gradient below 6e-8: the loss is scaled up first */
};

/* f32 throughout. */
struct precision precision_f32(void);
/* bf16 weights and activations, f32 masters, gradients and states. */
struct precision precision_bf16(void);
/* f16 weights and activations, f32 masters, gradients and states, loss scaling. */
struct precision precision_f16(void);

/* True when updates write bf16 that nothing wider stands behind: rounded to nearest, such a number
 * stops moving as soon as an update is less than half its last place. */
bool precision_needs_chance(const struct precision *p);

/* Whether a parameter that lies in memory as d has a master beside it. */
bool precision_has_master(const struct precision *p, enum dtype d);

enum status precision_apply(struct graph *g, const struct precision *p) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
