/* rng.h: counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel Random Numbers:
 * As Easy as 1, 2, 3", 2011).
 *
 * A draw is a pure function of (key, counter): recompute, offload, threads and tiers cannot change
 * it. The CUDA kernels use the same function, so both devices draw the same numbers.
 */
#ifndef SNUG_BASE_RNG_H
#define SNUG_BASE_RNG_H

#include <math.h>
#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct philox4 {
    uint32_t v[4];
};

/* Both halves of a product. CUDA compilers make an addition more of the plain form. */
static inline HOST_DEVICE void philox_product(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low)
{
#ifdef __CUDA_ARCH__
    asm("{ .reg .b64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }"
        : "=r"(*low), "=r"(*high)
        : "r"(a), "r"(b));
#else
    uint64_t p = (uint64_t)a * b;
    *high = (uint32_t)(p >> 32);
    *low = (uint32_t)p;
#endif
}

/* Ten rounds are the rule; seven are the fewest the paper found to pass every test, for places
 * where drawing would cost as much as the work. */
static inline HOST_DEVICE struct philox4 philox_rounds(uint64_t key, uint64_t counter_hi,
                                                       uint64_t counter_lo, int n_rounds)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < n_rounds; round++) {
        uint32_t high0, low0, high1, low1;
        philox_product(0xD2511F53u, c0, &high0, &low0);
        philox_product(0xCD9E8D57u, c2, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct philox4 r = {{c0, c1, c2, c3}};
    return r;
}

static inline HOST_DEVICE struct philox4 philox(uint64_t key, uint64_t counter_hi,
                                                uint64_t counter_lo)
{
    return philox_rounds(key, counter_hi, counter_lo, 10);
}

/* words [4 n]: philox of n counters from this one on, four words each. */
void philox_fill(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, int64_t n,
                 uint32_t *words);

/* Uniform in [0, 1) with 24 bits, exact in float. */
static inline HOST_DEVICE float rng_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* Two normal draws from two words (Box-Muller). */
static inline HOST_DEVICE void rng_normal2(uint32_t a, uint32_t b, float *x, float *y)
{
    double u = ((double)a + 0.5) * (1.0 / 4294967296.0);
    double r = sqrt(-2.0 * log(u));
    double t = 6.283185307179586 * ((double)b * (1.0 / 4294967296.0));
    *x = (float)(r * cos(t));
    *y = (float)(r * sin(t));
}

/* A sequential generator on top, for host-side decisions (shuffling, sampling). Its whole state is
 * three integers, so checkpoints store it exactly. */
struct rng {
    uint64_t key, stream, n_drawn;
};

static inline uint32_t rng_next(struct rng *r)
{
    struct philox4 p = philox(r->key, r->stream, r->n_drawn / 4);
    return p.v[r->n_drawn++ % 4];
}

static inline double rng_double(struct rng *r)
{
    uint64_t hi = rng_next(r), lo = rng_next(r);
    return (double)((hi << 21) ^ (lo >> 11)) * (1.0 / 9007199254740992.0);
}

/* Uniform integer in [0, n), without modulo bias (values past the last whole multiple are redrawn).
 */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % n;
    for (;;) {
        uint64_t hi = rng_next(r);
        uint64_t x = (hi << 32) | rng_next(r);
        if (x < limit)
            return x % n;
    }
}

#ifdef __cplusplus
}
#endif
#endif
