/* split.h: an f32 kept in 24 bits: the bf16 that is nearest to it, and in a byte what that lacks.
 *
 * bf16 is the upper half of an f32; the byte is the next eight bits, counted from the middle
 * between two neighbours, so that the bf16 alone is the number rounded to nearest. Adding 128 to
 * the upper 24 bits of the f32 gives both: the upper 16 and the lower 8 bits of the sum. CPU and
 * CUDA kernels both call these functions.
 */
#ifndef SNUG_BASE_SPLIT_H
#define SNUG_BASE_SPLIT_H

#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPLIT_NOTHING = 128 }; /* the byte of a number that is a bf16 */

/* The bits of the f32. */
static inline HOST_DEVICE uint32_t split_join(uint32_t bf16, uint32_t rest)
{
    return ((bf16 << 8 | rest) - SPLIT_NOTHING) << 8;
}

/* The bf16 in the upper 16 bits of 24, the byte below. `parts` of 256 are added before what is
 * below 24 bits is cut off: a random number rounds by chance (base/rounding.h). NaN stays NaN. */
static inline HOST_DEVICE uint32_t split_by(uint32_t f32_bits, uint32_t parts)
{
    uint32_t is_nan = (f32_bits & 0x7fffffffu) > 0x7f800000u;
    uint32_t upper = is_nan ? f32_bits >> 8 | 0x4000u : (f32_bits + parts) >> 8;
    return is_nan ? (upper & 0xffff00u) | SPLIT_NOTHING : upper + SPLIT_NOTHING;
}

/* What rounds to nearest, and to even. */
static inline HOST_DEVICE uint32_t split_nearest(uint32_t f32_bits)
{
    return split_by(f32_bits, 0x7fu + (f32_bits >> 8 & 1u));
}

#ifdef __cplusplus
}
#endif
#endif
