/* known.h: what programs came to that were emitted, by their plans. Searches that begin again with
 * less to choose from come to the plans of others, and short programs to many of them; and a thread
 * may have been there before (foresee.c). */
#ifndef SNUG_SEARCH_KNOWN_H
#define SNUG_SEARCH_KNOWN_H

#include <pthread.h>

#include "base/vec.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of one workload's programs, by the plan to train. */
struct known_program {
    uint64_t plan;               /* plan_hash, */
    int group;                   /* of a graph of so many micro-batches */
    int64_t n_bytes[TIER_COUNT]; /* of the arenas; of the device's no layout takes less */
    int64_t recorded_bytes;      /* of the device, beside them */
    int64_t n_instrs;
    double seconds; /* of a step; 0: nobody wanted to know */
};

/* Threads may use one at the same time. */
struct known {
    pthread_mutex_t lock;
    VEC(struct known_program) programs;
    int32_t *slots; /* [n_slots], a power of two: programs by their plan; -1: none */
    size_t n_slots;
};

void known_init(struct known *k);
void known_release(struct known *k);
/* p: its plan and group; false: nothing is known of it. */
bool known_find(struct known *k, struct known_program *p);
enum status known_put(struct known *k, const struct known_program *p) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
