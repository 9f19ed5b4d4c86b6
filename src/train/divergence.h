/* divergence.h: whether losses and gradients are still those of a run that goes well.
 *
 * Running means (decay 0.99) of the loss, of its squared deviation and of the gradient norm; each
 * step is held against what they were before it. Levels go by the worst of:
 *
 *     loss above its mean by     0.7 t, t, 2 t deviations      caution, warning, critical
 *     gradient norm              10, 100 times its mean        warning, critical
 *     turns of the loss          more than noise has by        caution, warning
 *                                2, 4 deviations
 *
 * Only a rise counts: a loss that falls fast is none. A turn is a step at which a loss that fell
 * rises, or the other way round: two steps in three where losses are noise alone. Three warnings in
 * a row are critical. The first steps only fill the means.
 */
#ifndef SNUG_TRAIN_DIVERGENCE_H
#define SNUG_TRAIN_DIVERGENCE_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum divergence_level {
    DIVERGENCE_NONE,
    DIVERGENCE_CAUTION,
    DIVERGENCE_WARNING,
    DIVERGENCE_CRITICAL
};

enum { DIVERGENCE_FIRST = 50 }; /* steps that only fill the means */

/* Plain data that checkpoints keep. All zero at first. */
struct divergence {
    int64_t n, n_warnings; /* steps; warnings in a row */
    double loss, square, norm, turns;
    double last, rise; /* the last loss, and by how much it was more than the one before */
};

/* `sigma`: deviations of a warning. */
enum divergence_level divergence_step(struct divergence *d, double sigma, double loss, double norm);

/* From here on losses are expected to differ by this from what they were. */
void divergence_expect(struct divergence *d, double difference);

/* New reference; NULL when out of memory. */
json_t *divergence_json(const struct divergence *d);
enum status divergence_read(struct divergence *d, const json_t *o) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
