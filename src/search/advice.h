/* advice.h: the nearest change of settings with which a plan would fit, found by planning it.
 *
 * A plan is the smallest one there is: what may leave the device has left it. First what keeps the
 * mathematics: letting go of what the config holds on the device, then smaller micro-batches with
 * more of them.
 * Then, with these and without, sets of changes to the numerics, from the mildest to the harshest.
 * The settings and their names belong to whoever asks; here is the order in which they are tried.
 */
#ifndef SNUG_SEARCH_ADVICE_H
#define SNUG_SEARCH_ADVICE_H

#include "search/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The run with other settings. */
struct variant {
    unsigned changes; /* of the numerics: bit i is change i */
    bool release;     /* what the config holds on the device may leave it */
    int64_t n_parts;  /* micro-batches that one of before becomes */
};

/* Which variants there are, and what they come to. */
struct variants {
    const int *harshness; /* of each change */
    int n_changes;
    bool may_release; /* the config holds something */
    int64_t batch;    /* sequences in a micro-batch: it is cut into equal parts */
    void *user;
    /* Bytes of the tier that no plan of the variant gets below, known without planning; INT64_MAX
     * when there is no such variant. */
    int64_t (*least)(void *user, const struct variant *v);
    /* *n_bytes = what a plan of it takes; false: it cannot be planned. */
    bool (*plan)(void *user, const struct variant *v, int64_t *n_bytes);
    /* Appends the settings to change: "with KEY: VALUE", "without KEY: VALUE". */
    void (*describe)(void *user, const struct variant *v, struct str *out);
};

struct advice {
    bool found;
    char text[512];         /* "with bf16: true", and whether the numerics change */
    int64_t n_bytes;        /* of the tier: with the change, or the least that any change leaves */
    enum memory_class most; /* what most of the device tier is for as it is, */
    int64_t most_bytes;     /* and how much of it */
};

/* Looks for a variant that brings `tier` down to n_bytes, for a few seconds at most; `now` is what
 * the run takes as it is. */
void advice_find(const struct variants *x, const struct forecast *now, enum tier tier,
                 int64_t n_bytes, struct advice *out);

#ifdef __cplusplus
}
#endif
#endif
