/* disk_steps.h: from the plan that was found to one with a little more or less on disk.
 *
 * The search says in quarters of the network what goes to disk, and its fast model sees the disk as
 * a sum of bytes. What counts beyond is whether the disk ever waits: how many blocks of what are
 * there, and how much of the host is for what is on its way between disk and device. With room for
 * more, what an update needs is read long before, and what it has written waits for the disk
 * instead of compute. So neighbours of the plan are tried, on programs, while one of them is
 * faster.
 */
#ifndef SNUG_SEARCH_DISK_STEPS_H
#define SNUG_SEARCH_DISK_STEPS_H

#include "search/search.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *d: decisions whose programs the workload has, and has afterwards: of *d with other numbers of
 * blocks on disk, another ring or more halfway_bytes, where these fit and are predicted to be
 * faster. What the bounds fix stays. */
enum status disk_steps(struct workload *w, const struct limits *limits,
                       const struct search_bounds *bounds, const struct kernel_times *times,
                       struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
