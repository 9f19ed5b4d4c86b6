/* permutation.h: a shuffled order of 0..n-1 that is computed, not stored.
 *
 * A Feistel network over the smallest even number of bits that holds n, with Philox as its round
 * function, is a bijection of 0..2^bits-1; values that fall outside 0..n-1 are sent through again
 * until they fall inside ("cycle walking": Black and Rogaway, "Ciphers with Arbitrary Finite
 * Domains", 2002), which keeps it a bijection. At least a quarter of the values are inside, so it
 * takes four passes at worst on average. Any n up to 2^62; the order is a pure function of
 * (key, stream, n).
 */
#ifndef SNUG_DATA_PERMUTATION_H
#define SNUG_DATA_PERMUTATION_H

#include <stdint.h>

#include "base/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where position i (< n) goes. */
static inline uint64_t permute(uint64_t key, uint64_t stream, uint64_t n, uint64_t i)
{
    enum { ROUNDS = 8 };
    unsigned half = 1;
    while (((uint64_t)1 << (2 * half)) < n)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            struct philox4 p = philox(key, stream, round << 32 | right);
            uint64_t next = left ^ (p.v[0] & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

#ifdef __cplusplus
}
#endif
#endif
