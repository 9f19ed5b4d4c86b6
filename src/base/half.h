/* half.h: 16-bit floats in and out of float. Rounding is to nearest even; NaN stays NaN. */
#ifndef SNUG_BASE_HALF_H
#define SNUG_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/sanitizer.h"

#ifdef __cplusplus
extern "C" {
#endif

static UNSANITIZED ALWAYS_INLINE float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static UNSANITIZED ALWAYS_INLINE uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static UNSANITIZED ALWAYS_INLINE float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static UNSANITIZED ALWAYS_INLINE uint16_t bf16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x0040u; /* quiet, payload kept */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* fp16 by integer scaling: exact for normals, subnormals, infinities and NaN. */
static UNSANITIZED ALWAYS_INLINE float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    uint32_t small = f32_bits((float)(int32_t)rest * 5.9604644775390625e-8f); /* 2^-24 */
    uint32_t bits = rest < 0x0400u ? small : (rest << 13) + 0x38000000u;
    bits = rest >= 0x7c00u ? 0x7f800000u | ((rest & 0x3ffu) << 13) : bits;
    return f32_from_bits(sign | bits);
}

/* Every case is computed and one chosen, so that loops of it vectorise. */
static UNSANITIZED ALWAYS_INLINE uint16_t f16_from_f32(float f)
{
    uint32_t sign = (f32_bits(f) >> 16) & 0x8000u, u = f32_bits(f) & 0x7fffffffu;
    uint32_t h = (u + 0xfffu + ((u >> 13) & 1u) - 0x38000000u) >> 13;
    /* below 2^-14: subnormal; the addition rounds to nearest even */
    uint32_t small = f32_bits(f32_from_bits(u) + 0.5f) - 0x3f000000u;
    h = u < 0x38800000u ? small : h;
    h = u >= 0x477ff000u ? 0x7c00u : h; /* 65520 and above round to infinity */
    h = u > 0x7f800000u ? 0x7e00u : h;
    return (uint16_t)(sign | h);
}

#ifdef __cplusplus
}
#endif
#endif
