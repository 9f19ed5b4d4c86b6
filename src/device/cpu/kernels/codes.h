/* codes.h: numbers from 8-bit codes and back (base/dynamic_map.h, FORMAT_BLOCK8). */
#ifndef SNUG_DEVICE_CPU_KERNELS_CODES_H
#define SNUG_DEVICE_CPU_KERNELS_CODES_H

#include "base/dynamic_map.h"
#include "device/cpu/cpu_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[i] = the number of codes[i], for n codes; absmax[i / DYNAMIC_BLOCK] is the scale. */
void cpu_decode(float *SNUG_RESTRICT x, const uint8_t *codes, const float *absmax,
                const struct dynamic_map *map, int64_t n);

/* The scales of x and the codes of its numbers; is_signed says which map it is. */
void cpu_encode(uint8_t *codes, float *absmax, const float *SNUG_RESTRICT x,
                const struct dynamic_map *map, bool is_signed, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
