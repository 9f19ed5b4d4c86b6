/* gaps.h: what is placed so far, and the lowest gap in it for what comes next.
 *
 * Time is cut into stretches, eight of these make a longer one, and so on up to all of it:
 *
 *     level 1   |        0        |        1        |
 *     level 0   | 0 1 2 3 4 5 6 7 | 8 9 ...                 item   partly in 6, whole 7, whole 1
 *                            [--------------------]
 *
 * An item lives through a few stretches as a whole, the largest there are, and partly in two of the
 * lowest level at most. A stretch knows the addresses that are taken throughout (`full`), those
 * that are taken at some time (`taken`), as spans that are few where things are packed, and of the
 * lowest level the items that live partly in it. So an item asks the stretches it lives through
 * what they take, those around them what is full, and looks at single items only where it begins
 * and ends. What is found is what a look at all of them would find.
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
