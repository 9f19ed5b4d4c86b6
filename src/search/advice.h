/* advice.h: changes of settings with which a plan would fit, found by planning them.
 *
 * A plan is the smallest one there is: what may leave the device has left it. First what keeps the
 * mathematics: letting go of what the config holds on the device, then smaller micro-batches with
 * more of them, then more memory of any kind. Then sets of changes to the numerics, from the
 * mildest to the harshest, and training an adapter instead of the model. What asks for more than
 * another remedy does is none. What is found is then planned as it would run, for its speed, and
 * ranked by what it costs: the same losses first, of two that cost the same the faster one.
 * The settings and their names belong to whoever asks; here is the order in which they are tried.
 */
#ifndef SNUG_SEARCH_ADVICE_H
#define SNUG_SEARCH_ADVICE_H

#include "search/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run could have that is no change of its numbers; each is tried by itself. */
enum advice_way {
    WAY_NONE,
    WAY_MORE,  /* of the memory that is short, as far as there is */
    WAY_HOST,  /* more of the host's, for what may leave the device */
    WAY_DISK,  /* a folder to send it to */
    WAY_LORA,  /* an adapter that is trained instead of the model, */
    WAY_QLORA, /* on weights of 4 bits */
    WAY_COUNT
};

/* The run with other settings. */
struct variant {
    unsigned changes; /* of the numerics: bit i is change i */
    bool release;     /* what the config holds on the device may leave it */
    int64_t n_parts;  /* micro-batches that one of before becomes */
    enum advice_way way;
};

struct remedy {
    struct variant variant;
    int64_t n_bytes;           /* of the tier that is short, with it */
    int64_t needs[TIER_COUNT]; /* of each */
    double units_s;            /* tokens, samples, per second; 0: that was not looked for */
    char text[512];            /* the settings */
};

/* Which variants there are, and what they come to. */
struct variants {
    const int *harshness; /* of each change */
    int n_changes;
    bool may_release;       /* the config holds something */
    bool has_ways;          /* beside changes of the numbers */
    int64_t batch;          /* sequences in a micro-batch: it is cut into equal parts */
    int harshness_of_parts; /* 0: they come to the same sums, in another order */
    void *user;
    /* Bytes of the tier that no plan of the variant gets below, known without planning; INT64_MAX
     * when there is no such variant. */
    int64_t (*least)(void *user, const struct variant *v);
    /* What a plan of it takes of each tier; false: it cannot be planned, or another tier is short
     * then. */
    bool (*plan)(void *user, const struct variant *v, int64_t needs[TIER_COUNT]);
    /* The settings to change, as they are given: "bf16=true optim=adamw_8bit". */
    void (*describe)(void *user, const struct remedy *r, struct str *out);
    /* Plans it as it would run, and notes how fast that is; it may become one that costs the same
     * and is faster. False: it does not fit after all. NULL: nobody has the time. */
    bool (*price)(void *user, struct remedy *r);
};

enum { MOST_REMEDIES = 4 /* of one kind */ };

struct advice {
    struct remedy remedies[MOST_REMEDIES + WAY_COUNT]; /* from what costs the least on */
    int n;
    const char *unit;       /* of units_s: "tokens" */
    bool host_is_elsewhere; /* another machine's: how much there is is not known */
    bool parts_matter;      /* smaller micro-batches have other losses, too */
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
