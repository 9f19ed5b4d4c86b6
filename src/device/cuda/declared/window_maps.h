/* window_maps.h: pools and resizes as linear maps along each axis: which places of x an output
 * reads, which outputs read a place, and the share that place i has in output o (0 where it has
 * none). On the GPU, and in tests without one.
 *
 * Twice, in 32 and in 64 bits (window_maps.def): divisions of 64 bits would take longer than the
 * memory. WINDOW_SMALL is where the former end: of every size below it, all that is worked out
 * fits.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_WINDOW_MAPS_H
#define SNUG_DEVICE_CUDA_DECLARED_WINDOW_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WINDOW_SMALL = 1 << 14 };

#define I        int32_t
#define NAMED(x) x##_32
#include "device/cuda/declared/window_maps.def"
#undef I
#undef NAMED

#define I        int64_t
#define NAMED(x) x##_64
#include "device/cuda/declared/window_maps.def"
#undef I
#undef NAMED

#ifdef __cplusplus
}
#endif
#endif
