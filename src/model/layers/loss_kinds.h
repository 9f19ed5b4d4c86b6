/* loss_kinds.h: the losses a network may have, each as a number for every sample. Internal to
 * objective.c. */
#ifndef SNUG_MODEL_LAYERS_LOSS_KINDS_H
#define SNUG_MODEL_LAYERS_LOSS_KINDS_H

#include "model/layers/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loss_kind {
    const char *name;
    const char *number; /* the key of loss_term.number; NULL: it has none */
    double preset;
    bool of_classes;      /* targets are labels */
    const char *coupling; /* what it takes over all samples of a batch; NULL: nothing */
    enum field_draw draw;
    /* f32 [B] of an output in f32 (of classes: as it is) and its target. */
    value_id (*of_samples)(struct writer *w, const struct loss_term *t, value_id x, value_id y);
};

/* NULL: there is none of that name. */
const struct loss_kind *loss_kind_find(const char *name);
/* All names, with commas. */
const char *loss_kind_names(void);

/* The variance of the numbers of all samples that count: n of them, as if they were a sample of
 * more (n - 1); that of one number is 0. Samples that do not count are left out. */
value_id batch_variance(struct writer *w, value_id y);
/* 1 where a variance is at least so much, 0 where it is 0, and between them below. */
value_id batch_differs(struct writer *w, value_id variance, double least);

#ifdef __cplusplus
}
#endif
#endif
