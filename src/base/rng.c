/* rng.c: many words of a stream at a time. */
#include "base/rng.h"

#ifdef __AVX512F__
#include <immintrin.h>

enum { LANES = 8, SETS = 4 }; /* sets whose rounds run side by side, as a product takes a while */

/* Counters in lanes of 64 bits, of which the lower 32 count: a product of two such lanes is one
 * instruction, which compilers do not find by themselves. */
struct counters {
    __m512i c0, c1, c2, c3;
};

static inline struct counters first_counters(uint64_t hi, uint64_t lo)
{
    __m512i at = _mm512_add_epi64(_mm512_set1_epi64((long long)lo),
                                  _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    struct counters c = {at, _mm512_srli_epi64(at, 32), _mm512_set1_epi64((long long)hi),
                         _mm512_set1_epi64((long long)(hi >> 32))};
    return c;
}

static inline struct counters next_round(struct counters c, __m512i k0, __m512i k1)
{
    enum { XOR_OF_THREE = 0x96 };
    __m512i p0 = _mm512_mul_epu32(c.c0, _mm512_set1_epi64(0xD2511F53));
    __m512i p1 = _mm512_mul_epu32(c.c2, _mm512_set1_epi64(0xCD9E8D57));
    struct counters next = {
        _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c.c1, k0, XOR_OF_THREE), p1,
        _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c.c3, k1, XOR_OF_THREE), p0};
    return next;
}

/* Words of each counter side by side. */
static inline void store_words(struct counters c, uint32_t *words)
{
    const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    __m512i a = _mm512_mask_blend_epi32(0xAAAA, c.c0, _mm512_slli_epi64(c.c1, 32));
    __m512i b = _mm512_mask_blend_epi32(0xAAAA, c.c2, _mm512_slli_epi64(c.c3, 32));
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(a, first, b));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(a, second, b));
}

static int64_t fill_sets(uint64_t key, uint64_t hi, uint64_t lo, int64_t n, uint32_t *words)
{
    int64_t done = 0;
    for (; done + SETS * LANES <= n; done += SETS * LANES) {
        struct counters c[SETS];
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int s = 0; s < SETS; s++)
            c[s] = first_counters(hi, lo + (uint64_t)(done + s * LANES));
        for (int round = 0; round < 10; round++) {
            __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);
            for (int s = 0; s < SETS; s++)
                c[s] = next_round(c[s], key0, key1);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int s = 0; s < SETS; s++)
            store_words(c[s], words + 4 * (done + s * LANES));
    }
    return done;
}
#else
static int64_t fill_sets(uint64_t key, uint64_t hi, uint64_t lo, int64_t n, uint32_t *words)
{
    (void)key;
    (void)hi;
    (void)lo;
    (void)n;
    (void)words;
    return 0;
}
#endif

void philox_fill(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, int64_t n, uint32_t *words)
{
    int64_t done = fill_sets(key, counter_hi, counter_lo, n, words);
#pragma omp simd
    for (int64_t i = done; i < n; i++) {
        struct philox4 w = philox(key, counter_hi, counter_lo + (uint64_t)i);
        words[4 * i] = w.v[0];
        words[4 * i + 1] = w.v[1];
        words[4 * i + 2] = w.v[2];
        words[4 * i + 3] = w.v[3];
    }
}
