/* repair.h: makes a layout fit into a given height by ejection chains (used by layout.c only). */
#ifndef SNUG_PLAN_REPAIR_H
#define SNUG_PLAN_REPAIR_H

#include "plan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Items hold a layout without overlap; sizes, offsets and `capacity` are aligned, and the capacity
 * is no less than the lower bound. Moves items until all lie below it or *work (comparisons,
 * counted down) is spent; what has no place by then goes wherever there is a gap, above the
 * capacity if need be. *height is what the layout needs afterwards, which may be more than before:
 * keep a copy. */
enum status layout_repair(struct layout_item *items, size_t n, int64_t capacity, int64_t *work,
                          int64_t *height) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
