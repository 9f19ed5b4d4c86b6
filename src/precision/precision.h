/* precision.h: a format for each role, and for each parameter.
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

#include "graph/format.h"
#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct precision {
    enum dtype weights;   /* and activations; some parameters stay f32, see above */
    enum dtype gradients; /* of parameters */
    enum format states;   /* optimizer moments; of small parameters see precision_role */
    bool masters;         /* f32 copies that the updates act on */
    bool split_masters;   /* beside bf16 weights: a byte for what they lack of 24 bits instead */
    bool loss_scaling;    /* f16 holds no gradient below 6e-8: the loss is scaled up first */
};

/* f32 throughout. */
struct precision precision_f32(void);
/* bf16 weights and activations, f32 masters, gradients and states. */
struct precision precision_bf16(void);
/* f16 weights and activations, f32 masters, gradients and states, loss scaling. */
struct precision precision_f16(void);

/* True when updates write bf16, or 24 bits, that nothing wider stands behind: rounded to nearest,
 * such a number stops moving as soon as an update is less than half its last place. */
bool precision_needs_chance(const struct precision *p);

/* What one parameter is in a run, and the formats of what is kept of it. */
struct param_role {
    bool trained;        /* else: no gradient, no states, no master: one copy */
    enum format storage; /* of the copy that the ops read */
    enum format master;  /* of the copy that the updates act on; NONE: that is the same one */
    enum format states;  /* of each state that the optimizer keeps; NONE: it keeps none */
};

/* The role of a parameter of precision_apply's graph. This is where formats are chosen: block-wise
 * states save nothing worth having on a small tensor, which keeps them in f32. */
struct param_role precision_role(const struct precision *p, const struct value *param,
                                 bool is_frozen);

/* Gives an input that meets weights their dtype; the elements of a constant are rounded to it. */
enum status precision_set_dtype(struct graph *g, value_id v, enum dtype dtype) MUST_CHECK;

enum status precision_apply(struct graph *g, const struct precision *p) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
