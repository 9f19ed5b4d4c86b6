/* math.h: exp, log, tanh, erf and friends as straight-line code, so that loops over them
 * vectorise. No branches, no tables, no calls: both sides of a choice are computed and selected.
 *
 * Accuracy against the exact value, in f32: about 2 units in the last place over the whole range
 * (subnormal results included); the lower tail of the normal distribution 2e-6 relative down to -6
 * and 1e-5 beyond. NaN in, NaN out; infinities give the limits. tests/device/test_cpu_math.c holds
 * this.
 *
 * The polynomials are Chebyshev fits of the smooth remainder of each function, made for this file;
 * the comment beside each says of what and where.
 */
#ifndef SNUG_DEVICE_CPU_SUPPORT_MATH_H
#define SNUG_DEVICE_CPU_SUPPORT_MATH_H

#include <math.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/half.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a b + c. Spelled as the fused instruction where there is one: under -std=c11 gcc does not fuse by
 * itself, which would halve the speed. Elsewhere fmaf is a slow library call. */
static ALWAYS_INLINE float cpu_fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* e^x = 2^n e^r with |r| <= ln(2)/2. 2^n is applied in two factors, so that n may leave the range
 * of normal exponents: results go to subnormals and to infinity as they should. */
static inline float cpu_expf(float x)
{
    float t = x > 89.0f ? 89.0f : x; /* a NaN passes both comparisons unchanged */
    t = t < -104.0f ? -104.0f : t;
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float shifted = cpu_fma(t, 1.44269504089f, round);
    float n = shifted - round;
    float r = cpu_fma(n, 2.12194440e-4f, cpu_fma(n, -0.693359375f, t)); /* ln 2 in two parts */
    /* (e^r - 1 - r) / r^2 */
    float p = 1.989101718e-4f;
    p = cpu_fma(p, r, 1.393367373e-3f);
    p = cpu_fma(p, r, 8.333310902e-3f);
    p = cpu_fma(p, r, 4.166646471e-2f);
    p = cpu_fma(p, r, 1.666666668e-1f);
    p = cpu_fma(p, r, 0.5f);
    p = cpu_fma(p, r * r, r);
    p = p + 1.0f;
    uint32_t k = f32_bits(shifted) - 0x4b400000u; /* n as a two's complement integer */
    uint32_t half = (k + 256u) / 2u - 128u;       /* floor(n / 2), without a signed shift */
    float a = f32_from_bits((half + 127u) << 23);
    float b = f32_from_bits((k - half + 127u) << 23);
    return p * a * b;
}

/* log x = e ln 2 + log m with m in [sqrt(1/2), sqrt(2)). */
static inline float cpu_logf(float x)
{
    int tiny = x < 1.17549435e-38f;
    float normal = tiny ? x * 8388608.0f : x;
    uint32_t above = f32_bits(normal) - 0x3f3504f3u; /* sqrt(1/2) */
    uint32_t e_bits = above & 0xff800000u;
    float e = (float)((int32_t)e_bits / 8388608) - (tiny ? 23.0f : 0.0f);
    float f = f32_from_bits(f32_bits(normal) - e_bits) - 1.0f;
    /* (log(1 + f) - f + f^2 / 2) / f^3 */
    float p = -7.902743772e-2f;
    p = cpu_fma(p, f, 1.262231985e-1f);
    p = cpu_fma(p, f, -1.299818376e-1f);
    p = cpu_fma(p, f, 1.421449592e-1f);
    p = cpu_fma(p, f, -1.664128146e-1f);
    p = cpu_fma(p, f, 2.000104509e-1f);
    p = cpu_fma(p, f, -2.500030642e-1f);
    p = cpu_fma(p, f, 3.333333073e-1f);
    float square = f * f;
    float y = p * f * square - e * 2.12194440e-4f;
    y = (y - 0.5f * square) + f;
    y = y + e * 0.693359375f;
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN; /* negative or NaN */
}

static inline float cpu_sigmoidf(float x)
{
    float e = cpu_expf(-fabsf(x)); /* never overflows, and the lower tail stays accurate */
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float cpu_tanhf(float x)
{
    float t = fabsf(x);
    float z = x * x;
    /* (tanh(t) / t - 1) / t^2 for t < 0.64 */
    float p = -5.992961254e-3f;
    p = cpu_fma(p, z, 2.092414818e-2f);
    p = cpu_fma(p, z, -5.383514126e-2f);
    p = cpu_fma(p, z, 1.333266348e-1f);
    p = cpu_fma(p, z, -3.333332786e-1f);
    float near = cpu_fma(x, z * p, x);
    float far = 1.0f - 2.0f / (cpu_expf(2.0f * t) + 1.0f);
    far = x < 0.0f ? -far : far;
    return t < 0.64f ? near : far;
}

/* e^(t^2) erfc(t) for t >= 0: u times a polynomial in u = 1 / (1 + 0.37 t), which runs over (0, 1]
 * and makes the function nearly straight. */
static inline float cpu_erfcxf(float t)
{
    float u = 1.0f / cpu_fma(0.37f, t, 1.0f);
    float p = 2.9896609e-2f;
    p = cpu_fma(p, u, -9.454296183e-2f);
    p = cpu_fma(p, u, 4.961558754e-2f);
    p = cpu_fma(p, u, 3.780497977e-2f);
    p = cpu_fma(p, u, 6.909232307e-2f);
    p = cpu_fma(p, u, 1.312570714e-1f);
    p = cpu_fma(p, u, 1.648226798e-1f);
    p = cpu_fma(p, u, 1.945565436e-1f);
    p = cpu_fma(p, u, 2.087470532e-1f);
    p = cpu_fma(p, u, 2.087501616e-1f);
    return p * u;
}

static inline float cpu_erff(float x)
{
    float t = fabsf(x);
    float z = x * x;
    /* erf(t) / t - 1 for t < 1 */
    float p = 7.875875063e-5f;
    p = cpu_fma(p, z, -8.016864287e-4f);
    p = cpu_fma(p, z, 5.189087423e-3f);
    p = cpu_fma(p, z, -2.685421201e-2f);
    p = cpu_fma(p, z, 1.128359472e-1f);
    p = cpu_fma(p, z, -3.761262667e-1f);
    p = cpu_fma(p, z, 1.283791658e-1f);
    float near = cpu_fma(x, p, x);
    float far = 1.0f - cpu_expf(-z) * cpu_erfcxf(t);
    far = x < 0.0f ? -far : far;
    return t < 1.0f ? near : far;
}

/* Normal distribution function at x, given exp(-x^2 / 2), which gradients need as well. The lower
 * tail is computed as a tail, so gelu keeps its relative accuracy where it goes to zero. */
static inline float cpu_normal_cdf_given(float x, float exp_minus_half_square)
{
    float tail = 0.5f * exp_minus_half_square * cpu_erfcxf(fabsf(x) * 0.70710678119f);
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float cpu_normal_cdf(float x)
{
    return cpu_normal_cdf_given(x, cpu_expf(-0.5f * x * x));
}

/* An integer that orders like the float (and its own inverse): a maximum of integers vectorises
 * everywhere, one of floats only where the compiler may forget about NaN. */
static inline int32_t cpu_order_key(int32_t bits)
{
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

/* The largest of n floats; -infinity when there is none. What a NaN does is not defined (either it
 * or the largest number comes out). */
static inline float cpu_max_of(const float *x, int64_t n)
{
    int32_t best = cpu_order_key((int32_t)0xff800000u);
#pragma omp simd reduction(max : best)
    for (int64_t i = 0; i < n; i++) {
        int32_t key = cpu_order_key((int32_t)f32_bits(x[i]));
        best = key > best ? key : best;
    }
    return f32_from_bits((uint32_t)cpu_order_key(best));
}

#ifdef __cplusplus
}
#endif
#endif
