/* saved_sets.h: what a place may leave for its backward pass: every way that is worth having.
 *
 * Each unit is kept, made again or moved. Making one again makes again what it reads and nobody
 * keeps, so its cost is found by walking the place's nodes, set by set. Sets that another one beats
 * in device bytes, seconds and bytes moved alike are dropped; of the rest those remain that are
 * best at some price of the link. Places that are alike are looked at once.
 */
#ifndef SNUG_SEARCH_SAVED_SETS_H
#define SNUG_SEARCH_SAVED_SETS_H

#include "search/survey.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_OPTIONS = 24 };

struct option {
    uint32_t dropped, moved; /* units */
    int64_t n_kept;          /* bytes on the device from the forward to the backward pass */
    int64_t n_moved;         /* bytes that cross the link each way instead */
    int64_t largest_moved;   /* of these: bytes of one tensor */
    double seconds;          /* of making again what was dropped */
    struct saved_set set;
};

/* The ways of one place, those that keep most first. The first is what the config says. */
struct options {
    const struct option *items;
    int n;
};

/* What the config has settled: these ways alone are left. */
struct saved_bounds {
    bool fixed_drops;           /* what is made again is as configured */
    bool fixed_moves, all_move; /* nothing is moved, or whatever may be */
};

/* *out: for every place of the survey, in its pool. price: seconds that a byte takes on the link.
 */
enum status saved_sets_find(struct options **out, struct survey *s,
                            const struct saved_bounds *bounds, double price) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
