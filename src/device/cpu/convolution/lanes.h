/* lanes.h: sixteen floats at a time: a register of AVX-512, or what the compiler makes of a short
 * loop. The tiles of convolutions are written in these. */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_LANES_H
#define SNUG_DEVICE_CPU_CONVOLUTION_LANES_H

#include "device/cpu/products/avx512.h"
#include "device/cpu/support/math.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LANES = 16 };

#if CPU_GEMM_AVX512

typedef __m512 lanes;

static inline lanes lanes_all(float x)
{
    return _mm512_set1_ps(x);
}
static inline lanes lanes_load(const float *at)
{
    return _mm512_loadu_ps(at);
}
static inline void lanes_store(float *at, lanes x)
{
    _mm512_storeu_ps(at, x);
}
static inline lanes lanes_fma(lanes a, lanes b, lanes sum)
{
    return _mm512_fmadd_ps(a, b, sum);
}

#else

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct {
    float of[LANES];
} lanes;

static inline lanes lanes_all(float x)
{
    lanes y;
    for (int i = 0; i < LANES; i++)
        y.of[i] = x;
    return y;
}
static inline lanes lanes_load(const float *at)
{
    lanes y;
    for (int i = 0; i < LANES; i++)
        y.of[i] = at[i];
    return y;
}
static inline void lanes_store(float *at, lanes x)
{
    for (int i = 0; i < LANES; i++)
        at[i] = x.of[i];
}
static inline lanes lanes_fma(lanes a, lanes b, lanes sum)
{
    for (int i = 0; i < LANES; i++)
        sum.of[i] = cpu_fma(a.of[i], b.of[i], sum.of[i]);
    return sum;
}

#endif

#ifdef __cplusplus
}
#endif
#endif
