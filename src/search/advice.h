/* advice.h: changes of settings with which a plan would fit, found by planning them.
 *
 * A plan is the smallest one there is: what may leave the device has left it. First what keeps the
 * mathematics: letting go of what the config holds on the device, then smaller micro-batches with
 * more of them. Then sets of changes to the numerics, from the mildest to the harshest. What asks
 * for more than another remedy does is none.
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
    /* *n_bytes = what a plan of it takes of the tier; false: it cannot be planned, or another tier
     * is short then. */
    bool (*plan)(void *user, const struct variant *v, int64_t *n_bytes);
    /* The settings to change, as they are given: "bf16=true optim=adamw_8bit". */
    void (*describe)(void *user, const struct variant *v, struct str *out);
};

enum { MOST_REMEDIES = 4 };

struct remedy {
    struct variant variant;
    int64_t n_bytes; /* of the tier, with it */
    char text[512];  /* the settings */
};

struct advice {
    struct remedy remedies[MOST_REMEDIES]; /* from the mildest on */
    int n;
    int64_t host_bytes;     /* with which it fits as it is, where the host's budget is in the way */
    int64_t least;          /* bytes of the tier: the least of all that was looked at */
    enum memory_class most; /* what most of the device tier is for as it is, */
    int64_t most_bytes;     /* and how much of it */
};

/* Looks for variants that bring `tier` down to n_bytes, for a few seconds at most; `now` is what
 * the run takes as it is. */
void advice_find(const struct variants *x, const struct forecast *now, enum tier tier,
                 int64_t n_bytes, struct advice *out);

#ifdef __cplusplus
}
#endif
#endif
