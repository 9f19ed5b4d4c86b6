/* objective.h: `loss:` of a network: what is minimised, of an output and its target.
 *
 *     loss: mse
 *     loss: {huber: {delta: 0.5}}
 *     loss: [{bce: {weight: 0.5}}, {dice: {weight: 0.5}}]
 *     loss: [{huber: {hardest: 0.35, hardest_factor: 1.5}}, {variance: {weight: 0.5}}]
 *
 * A loss is a mean over a sample's elements, summed over the samples that count and divided by how
 * many those are: micro-batches add up to the batch. Where a loss takes something over all samples
 * of a batch, it says so in writer.coupling. Losses are computed in f32.
 */
#ifndef SNUG_MODEL_LAYERS_OBJECTIVE_H
#define SNUG_MODEL_LAYERS_OBJECTIVE_H

#include "model/layers/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loss_kind;

struct loss_term {
    const struct loss_kind *kind;
    const char *name; /* of its sum */
    double weight;
    double number;                  /* what the kind is shaped by: beta, delta, gamma, smooth */
    double alpha;                   /* focal */
    bool over_std;                  /* divided by the standard deviation of the batch's targets */
    double hardest, hardest_factor; /* in training that share of a batch's samples, those with the
                                       largest losses, counts so many times; 0: all count once */
    double smoothing;               /* cross_entropy: of labels */
};

struct objective {
    struct loss_term *terms;
    int n_terms;
};

/* The value at `path` ("loss"); names begin with `name`, which is all of the name of a loss that
 * stands alone. */
enum status objective_parse(const struct layer_reader *r, struct keys *k, const json_t *value,
                            const char *path, const char *name, struct objective *out) MUST_CHECK;

/* A term by the name of its kind, which there is, for networks written in C. */
struct loss_term objective_term(const char *kind, const char *name, double weight);

/* Adds the losses of an output [B, ..] and what they compare it with, of the same shape. */
void objective_write_to(struct writer *w, const struct objective *o, value_id output,
                        value_id target);
/* Adds the losses of an output [B, ..] and the input that they compare it with. */
void objective_write(struct writer *w, const struct objective *o, value_id output,
                     const char *target);

#ifdef __cplusplus
}
#endif
#endif
