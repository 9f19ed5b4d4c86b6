/* advice.h: the nearest change of settings with which a plan would fit, found by planning it. */
#ifndef SNUG_TRAIN_ADVICE_H
#define SNUG_TRAIN_ADVICE_H

#include "train/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct advice {
    bool found;
    char text[512];         /* "gradient_checkpointing: true", and whether the numerics change */
    int64_t n_bytes;        /* of the tier: with the change, or the least that any change leaves */
    enum memory_class most; /* what most of the tier is for as it is, */
    int64_t most_bytes;     /* and how much of it */
};

/* Looks for a change that brings `tier` down to n_bytes, for a few seconds at most. */
void advice_find(const struct pipeline *p, const struct pipeline_options *o, enum tier tier,
                 int64_t n_bytes, struct advice *out);

#ifdef __cplusplus
}
#endif
#endif
