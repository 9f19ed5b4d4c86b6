/* known.h: what programs came to that were emitted, by their plans. Searches that begin again with
 * less to choose from come to the plans of others, and short programs to many of them. */
#ifndef SNUG_SEARCH_KNOWN_H
#define SNUG_SEARCH_KNOWN_H

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

struct known {
    VEC(struct known_program) programs;
    int32_t *slots; /* [n_slots], a power of two: programs by their plan; -1: none */
    size_t n_slots;
};

void known_release(struct known *k); /* also of one that is all zero */
/* NULL: it is not known. Good until another is noted. */
struct known_program *known_find(const struct known *k, uint64_t plan, int group);
enum status known_note(struct known *k, const struct known_program *p) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
