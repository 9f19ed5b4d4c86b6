/* avx512.h: what the packed products share of AVX-512: masks for part of a vector, the
 * conversion and transpose of registers. Empty where the build may not use it. */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_AVX512_H
#define SNUG_DEVICE_CPU_PRODUCTS_AVX512_H

#include "device/cpu/products/gemm_avx512.h"

#if CPU_GEMM_AVX512

#include <immintrin.h>
#include <stdint.h>

#include "base/compiler.h"

enum { AVX512_LANES = 16 };

#ifdef __clang__
#define UNROLL_4  _Pragma("clang loop unroll_count(4)")
#define UNROLL    _Pragma("clang loop unroll(full)")
#define UNROLL_32 UNROLL
#else
#define UNROLL_4  _Pragma("GCC unroll 4")
#define UNROLL    _Pragma("GCC unroll 16")
#define UNROLL_32 _Pragma("GCC unroll 32")
#endif

/* A mask of the first n of 16 lanes; n may be anything. */
static ALWAYS_INLINE __mmask16 avx512_first(int64_t n)
{
    unsigned count = (unsigned)MAX(MIN(n, AVX512_LANES), 0);
    return (__mmask16)((1u << count) - 1u);
}

/* The lanes of `keep` of 16 elements from element `at`, as f32; zero in the others, which are not
 * read. */
static inline __m512 avx512_load(const void *data, enum dtype dtype, int64_t at, __mmask16 keep)
{
    if (dtype == DTYPE_F32)
        return _mm512_maskz_loadu_ps(keep, (const float *)data + at);
    __m256i half = _mm256_maskz_loadu_epi16(keep, (const uint16_t *)data + at);
    if (dtype == DTYPE_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* bf16_from_f32 of each lane. */
static inline __m256i avx512_bf16(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    __m512i half =
        _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(high, _mm512_set1_epi32(1)));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(rounded);
}

/* r[i][j] -> r[j][i], in four rounds of shuffles: pairs, fours, eights, sixteens. */
static inline void avx512_transpose(__m512 r[AVX512_LANES])
{
    __m512 t[AVX512_LANES];
    UNROLL for (int i = 0; i < AVX512_LANES; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < AVX512_LANES; i += 4)
    {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
        __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

#endif
#endif
