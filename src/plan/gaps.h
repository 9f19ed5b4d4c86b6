/* gaps.h: what is placed so far, and the lowest gap in it for what comes next.
 *
 * Most buffers of a program live for a moment and only those around them in time are in their way;
 * the others are few. So time is cut into stretches, into many and once more into few:
 *
 *     short    a list by address for each stretch, and the addresses that it takes in all: of what
 *              lives through no more than three, of the many if it can be, else of the few
 *     long     one list, by address, of everything else
 *
 * An item looks at the stretches that it lives in, of both kinds, and at the long ones; where these
 * are more than three, at what the stretches take that it lives through. What is found is what a
 * look at all of them would find.
 */
#ifndef SNUG_PLAN_GAPS_H
#define SNUG_PLAN_GAPS_H

#include "plan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gaps;

/* For items that live up to that time. */
enum status gaps_new(struct gaps **out, int32_t last_time) MUST_CHECK;
void gaps_free(struct gaps *g);
void gaps_clear(struct gaps *g);

/* The lowest address where the item overlaps nothing that lives when it does, and puts it there. */
enum status gaps_place(struct gaps *g, struct layout_item *item) MUST_CHECK;

/* Comparisons so far. */
int64_t gaps_work(const struct gaps *g);

#ifdef __cplusplus
}
#endif
#endif
