/* skyline.h: heights over a row of places, raised over ranges, asked where they are too high.
 *
 * Bytes that are taken, instruction by instruction: a buffer raises its lifetime. Every question
 * takes the logarithm of the row's length.
 */
#ifndef SNUG_BASE_SKYLINE_H
#define SNUG_BASE_SKYLINE_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct skyline {
    int32_t n;       /* places, a power of two */
    int64_t *most;   /* of a node's places, with what was added to it as a whole */
    int64_t *raised; /* what was added to it as a whole */
};

/* All zero. */
enum status skyline_init(struct skyline *s, int32_t n_places) MUST_CHECK;
void skyline_release(struct skyline *s);

/* [from, end) gets higher, or lower. */
void skyline_raise(struct skyline *s, int32_t from, int32_t end, int64_t by);
/* The highest of all. */
int64_t skyline_most(const struct skyline *s);
/* The first, or the last, place of [from, end) that is higher than that; -1: none. */
int32_t skyline_first_above(const struct skyline *s, int32_t from, int32_t end, int64_t height);
int32_t skyline_last_above(const struct skyline *s, int32_t from, int32_t end, int64_t height);

#ifdef __cplusplus
}
#endif
#endif
