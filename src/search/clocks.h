/* clocks.h: about how long a step takes, in microseconds of thinking: three clocks (compute, the
 * link in, the link out) over the phases of a survey. It ranks; what is chosen is then predicted
 * instruction by instruction (program/predict.h).
 */
#ifndef SNUG_SEARCH_CLOCKS_H
#define SNUG_SEARCH_CLOCKS_H

#include "search/saved_sets.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A step, by places. */
struct outline {
    const int *option;                    /* [n_places] */
    const bool (*away)[HOME_CLASS_COUNT]; /* [n_places] */
    int64_t ring_bytes;
    const struct decisions *decisions; /* what of it is on disk */
};

/* Seconds on a link, ready to be multiplied: a division takes as long as a phase otherwise does. */
struct pace {
    double alone;   /* of a byte, */
    double against; /* of a byte on top, while another goes the other way, */
    double copy;    /* of a copy on top of its bytes */
};

struct clocks {
    const struct survey *survey;
    const struct options *options;
    const struct device *device;
    struct pace in, out, disk_in, disk_out;
    double beside; /* of compute, for a byte that crosses the link beside it, */
    double wait;   /* and for a copy: kernels wait for it, or for what it leaves */
    double held;   /* the part of a phase after which the last micro-batch of a group begins */
    /* Scratch, in the survey's pool. */
    struct phase_work *work; /* [n_phases] */
    struct phases_of_homes *homes;
};

enum status clocks_init(struct clocks *c, struct survey *s, const struct options *options,
                        const struct device *device) MUST_CHECK;

/* *out: the same clocks for another thread, whose scratch is in the pool. */
enum status clocks_share(const struct clocks *c, struct pool *pool, struct clocks *out) MUST_CHECK;

/* Seconds of an optimizer step. */
double clocks_step(const struct clocks *c, const struct outline *o);

#ifdef __cplusplus
}
#endif
#endif
