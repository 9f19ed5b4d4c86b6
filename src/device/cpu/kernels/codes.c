/* codes.c: two looks into a table for each number, one on the way in and one on the way out.
 * Compilers take them apart into single loads, where gathers are two to four times as fast; so
 * these are spelled out, and the arithmetic around them is left to vectorise by itself. */
#include "device/cpu/kernels/codes.h"

#include <math.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "base/half.h"

/* ---- decoding -------------------------------------------------------------------------------- */

static void decode_block(float *restrict x, const uint8_t *codes, const float *value, float scale,
                         int64_t n)
{
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) {
        __m512i at = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + i)));
        __m512 share = _mm512_i32gather_ps(at, value, sizeof(float));
        _mm512_storeu_ps(x + i, _mm512_mul_ps(share, _mm512_set1_ps(scale)));
    }
#endif
    for (; i < n; i++)
        x[i] = value[codes[i]] * scale;
}

void cpu_decode(float *restrict x, const uint8_t *codes, const float *absmax,
                const struct dynamic_map *map, int64_t n)
{
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK)
        decode_block(x + at, codes + at, map->value, absmax[at / DYNAMIC_BLOCK],
                     MIN((int64_t)DYNAMIC_BLOCK, n - at));
}

/* ---- encoding -------------------------------------------------------------------------------- */

static float largest(const float *restrict x, int64_t n)
{
    float most = 0.0f;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* at[i] becomes table[at[i]]. */
static void look_up(uint32_t *at, const uint32_t *table, int64_t n)
{
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) {
        __m512i found = _mm512_i32gather_epi32(_mm512_loadu_si512(at + i), table, sizeof(*table));
        _mm512_storeu_si512(at + i, found);
    }
#endif
    for (; i < n; i++)
        at[i] = table[at[i]];
}

static void encode_block(uint8_t *restrict codes, const float *restrict x,
                         const struct dynamic_map *map, bool is_signed, float inverse, int64_t n)
{
    uint32_t bits[DYNAMIC_BLOCK], entry[DYNAMIC_BLOCK];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        bits[i] = f32_bits(x[i] * inverse);
        entry[i] = dynamic_cell(bits[i]);
    }
    look_up(entry, map->cell, n);
    if (is_signed) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)dynamic_signed(dynamic_rank(entry[i], bits[i]), bits[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)dynamic_rank(entry[i], bits[i]);
    }
}

void cpu_encode(uint8_t *codes, float *absmax, const float *restrict x,
                const struct dynamic_map *map, bool is_signed, int64_t n)
{
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK) {
        int64_t size = MIN((int64_t)DYNAMIC_BLOCK, n - at);
        float most = largest(x + at, size);
        absmax[at / DYNAMIC_BLOCK] = most;
        encode_block(codes + at, x + at, map, is_signed, dynamic_inverse(most), size);
    }
}
