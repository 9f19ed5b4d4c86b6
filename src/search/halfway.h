/* halfway.h: how much of the host is for what is on its way from disk, or to it?
 *
 * A disk is slow and should never wait. With room for more on the host, what an update needs is
 * read long before, and what it has written waits for the disk instead of compute. The search takes
 * as little for that as the device's ring does; whatever the host has left is better spent so.
 */
#ifndef SNUG_SEARCH_HALFWAY_H
#define SNUG_SEARCH_HALFWAY_H

#include "search/forecast.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *d: decisions whose programs the workload has, and has afterwards: of *d with more halfway_bytes
 * where these fit and are predicted to be faster. */
enum status halfway_widen(struct workload *w, const struct limits *limits,
                          const struct kernel_times *times, struct decisions *d) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
