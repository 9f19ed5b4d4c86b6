/* layout.h: addresses for buffers whose lifetimes are known (dynamic storage allocation, offline).
 *
 * Buffers live over a closed interval of instruction indices; two that live at the same time must
 * not overlap in address. The lower bound is the largest number of bytes alive at one instant.
 */
#ifndef SNUG_PLAN_LAYOUT_H
#define SNUG_PLAN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct layout_item {
    int64_t n_bytes;     /* rounded up to the alignment by the solver */
    int32_t first, last; /* closed interval of time, from 0 */
    int64_t offset;      /* out */
};

struct layout_result {
    int64_t height;      /* bytes needed */
    int64_t lower_bound; /* largest sum alive at one time */
    int32_t peak_time;   /* an instant where lower_bound is reached */
    const char *method;  /* which order won, or "repair" */
    int n_tries;         /* orders and repairs */
    int64_t work;        /* comparisons that all of that took */
};

/* Greedy placement into the lowest gap over a portfolio of orders; where none meets the lower
 * bound, repair by ejection chains until one is within 0.05 % of it, in bounded work. Where there
 * is a budget, `enough` bytes need no repair (0: there is none), if they are not far above the
 * bound. Pure function of its input: the same program gets the same addresses everywhere. */
enum status layout_solve(struct layout_item *items, size_t n, int64_t align, int64_t enough,
                         struct layout_result *result) MUST_CHECK;

/* Bytes alive at the fullest instant; *peak_time (may be NULL) is the first such instant. */
enum status layout_lower_bound(const struct layout_item *items, size_t n, int64_t align,
                               int64_t *n_bytes, int32_t *peak_time) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
