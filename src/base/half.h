/* half.h: 16-bit floats in and out of float. Rounding is to nearest even; NaN stays NaN. */
#ifndef SNUG_BASE_HALF_H
#define SNUG_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x0040u; /* quiet, payload kept */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* fp16 by integer scaling: exact for normals, subnormals, infinities and NaN. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = h & 0x7fffu;
    uint32_t bits;
    if (rest >= 0x7c00u)
        bits = 0x7f800000u | ((rest & 0x3ffu) << 13);
    else if (rest >= 0x0400u)
        bits = (rest << 13) + 0x38000000u;
    else
        bits = f32_bits((float)rest * 5.9604644775390625e-8f); /* 2^-24 */
    return f32_from_bits(sign | bits);
}

static inline uint16_t f16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    uint32_t h;
    if (u > 0x7f800000u)
        h = 0x7e00u;
    else if (u >= 0x477ff000u) /* 65520 and above round to infinity */
        h = 0x7c00u;
    else if (u < 0x38800000u) /* below 2^-14: subnormal; the addition rounds to nearest even */
        h = f32_bits(f32_from_bits(u) + 0.5f) - 0x3f000000u;
    else
        h = (u + 0xfffu + ((u >> 13) & 1u) - 0x38000000u) >> 13;
    return (uint16_t)(sign | h);
}

#ifdef __cplusplus
}
#endif
#endif
