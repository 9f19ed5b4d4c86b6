/* mem_share.h: what one thread may hold of the heap.
 *
 * For work beside a run that was said to take no more: beyond it, and once it is ended, allocations
 * (alloc.h) of that thread fail as if there were no memory left.
 */
#ifndef SNUG_BASE_MEM_SHARE_H
#define SNUG_BASE_MEM_SHARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mem_share {
    int64_t most; /* bytes */
    int64_t held; /* now */
    int64_t peak; /* the most so far */
    int ended;
};

void mem_share_enter(struct mem_share *s); /* the thread that calls; NULL: it has none */
void mem_share_end(struct mem_share *s);   /* from another thread */
int mem_share_is_ended(const struct mem_share *s);

#ifdef __cplusplus
}
#endif
#endif
