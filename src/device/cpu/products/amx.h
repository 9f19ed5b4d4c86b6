/* amx.h: tile registers (AMX), for products of bf16 matrices. Empty where the
 * build may not use them; whether the processor lets us, cpu_gemm_amx_usable says.
 *
 * A tile holds 16 rows of 64 bytes. One instruction adds the product of 16 x 32 elements of A and
 * 32 x 16 of B to 16 x 16 sums in f32. Four tiles of sums, two of A and two of B are in use:
 *
 *            B0  B1                   packed A   [step of k][2 tiles][16 rows][32 k]
 *        A0  S0  S1    32 x 32 of C   packed B   [step of k][2 tiles][16 pairs of k][16 columns][2]
 *        A1  S2  S3
 *
 * so a step of 32 along k is four loads and four products.
 */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_AMX_H
#define SNUG_DEVICE_CPU_PRODUCTS_AMX_H

#include "device/cpu/products/gemm_amx.h"

#if CPU_GEMM_AMX

#include "device/cpu/products/avx512.h"

enum {
    AMX_TILE = 16,                  /* rows of a tile, and its 32-bit columns */
    AMX_STEP = 32,                  /* elements of k in a tile of A or B */
    AMX_CELL = AMX_TILE * AMX_STEP, /* elements of a packed tile */
    AMX_SIDE = 2 * AMX_TILE,        /* of the square of C that is summed at once */
    AMX_ROW_BYTES = 64,
    AMX_AHEAD = 2, /* steps of k that prefetches of A run ahead */
};

/* The compilers do not know what memory tile instructions read and write: what was stored at p is
 * there, and what follows looks again. */
#define AMX_MEMORY_IS_SEEN(p) __asm__ volatile("" ::"r"(p) : "memory")

/* Before a thread uses tiles. All eight in full: edges are padded with zeros where they are packed.
 */
static inline void amx_open(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = AMX_ROW_BYTES;
        shape.rows[i] = AMX_TILE;
    }
    AMX_MEMORY_IS_SEEN(&shape);
    _tile_loadconfig(&shape);
}

static inline void amx_close(void)
{
    _tile_release();
}

/* f32 memory with rows `row` elements apart; at NULL: there is none. */
struct amx_sums {
    float *at;
    int64_t row;
};

/* The sums begin with a square of memory, or with zeros. */
static inline void amx_load_sums(struct amx_sums from)
{
    size_t row = (size_t)from.row * sizeof(float);
    if (!from.at) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    AMX_MEMORY_IS_SEEN(from.at);
    _tile_loadd(0, from.at, row);
    _tile_loadd(1, from.at + AMX_TILE, row);
    _tile_loadd(2, from.at + AMX_TILE * from.row, row);
    _tile_loadd(3, from.at + AMX_TILE * from.row + AMX_TILE, row);
}

static inline void amx_store_sums(struct amx_sums to)
{
    size_t row = (size_t)to.row * sizeof(float);
    _tile_stored(0, to.at, row);
    _tile_stored(1, to.at + AMX_TILE, row);
    _tile_stored(2, to.at + AMX_TILE * to.row, row);
    _tile_stored(3, to.at + AMX_TILE * to.row + AMX_TILE, row);
    AMX_MEMORY_IS_SEEN(to.at);
}

/* Adds the product of 32 packed rows and 32 packed columns to the sums. */
static inline void amx_multiply(const uint16_t *a, const uint16_t *b, int64_t depth)
{
    AMX_MEMORY_IS_SEEN(a);
    AMX_MEMORY_IS_SEEN(b);
    for (int64_t k = 0; k < depth; k += AMX_STEP, a += 2 * AMX_CELL, b += 2 * AMX_CELL) {
        UNROLL_32 for (int i = 0; i < AMX_SIDE; i++)
        {
            _mm_prefetch((const char *)(a + AMX_AHEAD * 2 * AMX_CELL + i * AMX_STEP), _MM_HINT_T0);
        }
        _tile_loadd(6, b, AMX_ROW_BYTES);
        _tile_loadd(4, a, AMX_ROW_BYTES);
        _tile_loadd(7, b + AMX_CELL, AMX_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + AMX_CELL, AMX_ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

#endif
#endif
