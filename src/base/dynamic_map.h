/* dynamic_map.h: numbers from -1 to 1, or from 0 to 1, as codes of 8 bits.
 *
 * The map is bitsandbytes' (create_dynamic_map; Dettmers, "8-Bit Approximations for Parallelism in
 * Deep Learning"): seven decades down to 1e-7, each with half as many numbers as the one above it,
 * evenly spread; and 0 and 1, each rounded to f32 once (bitsandbytes' own differ from these, and
 * from machine to machine, by at most one unit in the last place). Small numbers keep their order
 * of magnitude, large ones two digits.
 *
 *     signed     code 0 .. 126: -0.993 .. -5.5e-7    127: 0    128 .. 254: 5.5e-7 .. 0.993   255: 1
 *     unsigned   code 0: 0     1 .. 254: 3.25e-7 .. 0.996   255: 1
 *
 * A number gets the code of the nearest. Its rank among the borders between neighbours is found
 * with one look into a table: a cell holds the numbers that share their upper 16 bits as f32, and
 * no cell has more than one border. The cell's entry is the rank of its lower end in the upper half
 * and 0xffff less the border's lower 16 bits in the lower half, so that adding a number's own lower
 * 16 bits carries into the rank just when the number is above the border.
 *
 * CPU and CUDA kernels both make their tables and codes with these functions; in C++ the tables are
 * constants of the program.
 */
#ifndef SNUG_BASE_DYNAMIC_MAP_H
#define SNUG_BASE_DYNAMIC_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
#define DYNAMIC_MAP_FUNCTION static constexpr
extern "C" {
#else
#define DYNAMIC_MAP_FUNCTION static inline
#endif

enum {
    DYNAMIC_CODES = 256,
    DYNAMIC_BLOCK = 256, /* numbers that share a scale, the largest magnitude among them */
    DYNAMIC_DECADES = 7,
    DYNAMIC_ZERO = 127,                              /* the signed map's code of 0 */
    DYNAMIC_FIRST_CELL = 0x3400,                     /* of 2^-23, below every border */
    DYNAMIC_CELLS = 0x3f80 - DYNAMIC_FIRST_CELL + 1, /* up to that of 1 */
};

struct dynamic_map {
    float value[DYNAMIC_CODES];
    uint32_t cell[DYNAMIC_CELLS];
};

/* ---- making the tables ----------------------------------------------------------------------- */

/* The bits of a normal f32 of at most 1, found by arithmetic: constants have no memory to look at.
 */
DYNAMIC_MAP_FUNCTION uint32_t dynamic_bits(float x)
{
    uint32_t exponent = 127;
    double mantissa = (double)x;
    while (mantissa < 1.0) {
        mantissa *= 2.0;
        exponent--;
    }
    return exponent << 23 | (uint32_t)((mantissa - 1.0) * 8388608.0);
}

/* The numbers above 0, rising, into `out`; how many. */
DYNAMIC_MAP_FUNCTION int dynamic_magnitudes(bool is_signed, float *out)
{
    double unit = 1e-6;
    int n = 0;
    for (int i = 0; i < DYNAMIC_DECADES; i++) {
        int n_values = is_signed ? 1 << i : 2 << i;
        for (int k = 0; k < n_values; k++)
            out[n++] = (float)(unit * (0.1 + 0.9 * (k + 0.5) / n_values));
        unit = i == DYNAMIC_DECADES - 2 ? 1.0 : unit * 10.0;
    }
    out[n++] = 1.0f;
    return n;
}

DYNAMIC_MAP_FUNCTION struct dynamic_map dynamic_map_make(bool is_signed)
{
    struct dynamic_map map = {{0}, {0}};
    float magnitude[DYNAMIC_CODES] = {0};
    int n = dynamic_magnitudes(is_signed, magnitude), zero = is_signed ? DYNAMIC_ZERO : 0;
    uint32_t at = 0;
    for (int j = 0; j < n; j++) {
        map.value[zero + 1 + j] = magnitude[j];
        if (zero - 1 - j >= 0)
            map.value[zero - 1 - j] = -magnitude[j];
        double below = j ? (double)magnitude[j - 1] : 0.0;
        float border = 0.5f * (float)((double)magnitude[j] + below);
        uint32_t bits = dynamic_bits(border), cell = (bits >> 16) - DYNAMIC_FIRST_CELL;
        while (at < cell)
            map.cell[at++] = (uint32_t)j << 16;
        map.cell[at++] = (uint32_t)j << 16 | (0xffffu - (bits & 0xffffu));
    }
    while (at < DYNAMIC_CELLS)
        map.cell[at++] = (uint32_t)n << 16;
    return map;
}

#ifdef __cplusplus
}
#endif

/* ---- codes ----------------------------------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif

/* The cell of |x|, given by the bits of x. What is above 1 counts as 1, what is below all borders
 * as the first cell, which has none. */
static inline HOST_DEVICE uint32_t dynamic_cell(uint32_t bits)
{
    int32_t at = (int32_t)((bits & 0x7fffffffu) >> 16) - DYNAMIC_FIRST_CELL;
    at = at < 0 ? 0 : at;
    return (uint32_t)(at > DYNAMIC_CELLS - 1 ? DYNAMIC_CELLS - 1 : at);
}

/* How many borders lie below |x|, from the entry of its cell: the code of the unsigned map. */
static inline HOST_DEVICE uint32_t dynamic_rank(uint32_t entry, uint32_t bits)
{
    return (entry + (bits & 0xffffu)) >> 16;
}

/* The signed map's code. A negative number never becomes 0: it keeps its sign. */
static inline HOST_DEVICE uint32_t dynamic_signed(uint32_t rank, uint32_t bits)
{
    uint32_t below = rank < 1 ? 1 : rank > DYNAMIC_ZERO ? (uint32_t)DYNAMIC_ZERO : rank;
    return bits >> 31 ? DYNAMIC_ZERO - below : DYNAMIC_ZERO + rank;
}

/* What the numbers of a block are multiplied by before they are coded. Below the smallest normal
 * number it is 0, and the block is kept as zeros: its inverse would not be finite. */
static inline HOST_DEVICE float dynamic_inverse(float absmax)
{
    return absmax >= 1.17549435e-38f ? 1.0f / absmax : 0.0f;
}

#ifdef __cplusplus
}
#endif
#endif
