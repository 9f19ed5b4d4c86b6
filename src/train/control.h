/* control.h: when gradients are predicted, and by how much of the prediction; docs/PHASES.md.
 *
 * Of the n micro-batches of a step, m are drawn; G_i is the gradient of one, H_i what is predicted
 * of it, and the step's is
 *
 *     sum over all n of c H_i  +  n/m (sum over the m of G_i - c H_i)
 *
 * whose mean over the draw is the sum of all G_i, whatever H and c are, as long as c does not
 * depend on the draw. c, and whether all this pays, follow from batches that are no part of the
 * step. Where it does not pay, steps are plain. Nothing here touches gradients.
 */
#ifndef SNUG_TRAIN_CONTROL_H
#define SNUG_TRAIN_CONTROL_H

#include "config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Plain data that checkpoints keep. */
struct control_state {
    bool is_on;                 /* the config asks for it */
    bool predicts;              /* until the next measurement */
    int64_t next;               /* after so many steps there is one */
    int64_t backoff;            /* times control_steps, because it did not pay */
    double coefficient;         /* c */
    int64_t n_measured, n_paid; /* measurements, and those that found that it pays */
    int64_t n_predicted;        /* steps */
    double variance_ratios;     /* of all measurements, added up */
};

struct control_state control_begin(const struct config *cfg);

/* Of differences between two micro-batches: squares of their gradients, of what is predicted of
 * them, and the product of both, added up over all parameters and pairs. */
struct control_moments {
    double gradient, predicted, product;
};

/* What follows from them. */
struct control_record {
    int64_t step;          /* after which */
    double correlation;    /* of G and H */
    double coefficient;    /* c */
    double variance_ratio; /* of a step, beside that of a plain one */
    double cost_ratio;     /* likewise, in FLOPs of the passes */
    bool predicts;         /* it pays */
    double seconds;        /* that measuring took */
};
struct control_record control_judge(const struct control_moments *x, const struct config *cfg,
                                    double cost_ratio);

/* Is it time to measure after this many steps? And what becomes of it. */
bool control_is_due(const struct control_state *c, int64_t step);
void control_take(struct control_state *c, const struct config *cfg, int64_t step,
                  const struct control_record *r);

/* Draws m of n, each subset as likely as any other: the first m of order[n] are those, in rising
 * order, and the rest follows. The same for the same seed and step. */
void control_draw(uint64_t seed, int64_t step, int64_t n, int64_t m, int64_t *order);

/* New reference; NULL when out of memory. */
json_t *control_json(const struct control_state *c);
/* Of a checkpoint without it there is nothing: then c stays as it is. */
enum status control_read(struct control_state *c, const json_t *o) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
