/* micro.h: the innermost matrix product: a tile of C that lives in vector registers.
 *
 *     C[MICRO_ROWS, MICRO_COLUMNS] = alpha A[MICRO_ROWS, k] B[k, MICRO_COLUMNS] + beta C
 *
 * Written as plain loops of constant length over a local array, which gcc and clang keep in
 * registers and turn into fused multiply-adds. The sizes are chosen so that the tile takes most of
 * the register file: with AVX-512 it is 12 x 32, 24 of the 32 registers.
 *
 * Everything is inline, so that a caller's constant strides and counts specialise the loops.
 */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_MICRO_H
#define SNUG_DEVICE_CPU_PRODUCTS_MICRO_H

#include <math.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/sanitizer.h"
#include "device/cpu/support/math.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__AVX512F__)
enum { MICRO_ROWS = 12, MICRO_COLUMNS = 32, MICRO_IS_FAST = 1 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { MICRO_ROWS = 6, MICRO_COLUMNS = 16, MICRO_IS_FAST = 1 };
#elif defined(__aarch64__)
enum { MICRO_ROWS = 8, MICRO_COLUMNS = 8, MICRO_IS_FAST = 1 };
#else
enum { MICRO_ROWS = 4, MICRO_COLUMNS = 8, MICRO_IS_FAST = 0 };
#endif

/* x, or 0 where x is next to nothing. Softmax tails reach the subnormal numbers, and products with
 * those take hundreds of cycles each. */
static inline float micro_flush(float x)
{
    return fabsf(x) < 1e-30f ? 0.0f : x;
}

/* n rounded up to a multiple of m. */
static inline int64_t micro_round_up(int64_t n, int64_t m)
{
    return (n + m - 1) / m * m;
}

enum { MICRO_SQUARE = 16 }; /* side of the squares that are transposed at once */

/* dst = rows 0 and 8, 1 and 9, ... of src, element by element in turn. */
static UNSANITIZED ALWAYS_INLINE void micro_shuffle(float *SNUG_RESTRICT dst,
                                                    const float *SNUG_RESTRICT src)
{
    for (int row = 0; row < MICRO_SQUARE / 2; row++) {
        for (int i = 0; i < MICRO_SQUARE; i++) {
            dst[2 * (row * MICRO_SQUARE + i)] = src[row * MICRO_SQUARE + i];
            dst[2 * (row * MICRO_SQUARE + i) + 1] =
                src[(row + MICRO_SQUARE / 2) * MICRO_SQUARE + i];
        }
    }
}

/* Transposes the square a. A shuffle rotates the bits of an element's index by one; four of them
 * exchange row and column, and vectorise where a plain transposition does not. */
static inline UNSANITIZED void micro_transpose(float a[MICRO_SQUARE * MICRO_SQUARE])
{
    sanitizer_expect(a, MICRO_SQUARE * MICRO_SQUARE * sizeof(float));
    float b[MICRO_SQUARE * MICRO_SQUARE];
    micro_shuffle(b, a);
    micro_shuffle(a, b);
    micro_shuffle(b, a);
    micro_shuffle(a, b);
}

/* What micro_tile touches. */
static inline void micro_expect(int64_t k, const float *a, int64_t a_row, int64_t a_step,
                                const float *b, int64_t b_row, const float *c, int64_t c_row,
                                int64_t n_rows, int64_t n_columns)
{
    if (!SNUG_ASAN || k == 0)
        return;
    int64_t n_a = (MICRO_ROWS - 1) * a_row + (k - 1) * a_step + 1;
    sanitizer_expect(a, (size_t)n_a * sizeof(float));
    sanitizer_expect(b, (size_t)((k - 1) * b_row + MICRO_COLUMNS) * sizeof(float));
    for (int64_t i = 0; i < n_rows; i++)
        sanitizer_expect(c + i * c_row, (size_t)n_columns * sizeof(float));
}

static inline UNSANITIZED void micro_sum(int64_t k, const float *SNUG_RESTRICT a, int64_t a_row,
                                         int64_t a_step, const float *SNUG_RESTRICT b,
                                         int64_t b_row, float alpha, int beta,
                                         float *SNUG_RESTRICT c, int64_t c_row, int64_t n_rows,
                                         int64_t n_columns)
{
    float sum[MICRO_ROWS][MICRO_COLUMNS];
    for (int i = 0; i < MICRO_ROWS; i++) {
        for (int j = 0; j < MICRO_COLUMNS; j++)
            sum[i][j] = 0.0f;
    }
    for (int64_t p = 0; p < k; p++) {
        for (int i = 0; i < MICRO_ROWS; i++) {
            float x = a[i * a_row + p * a_step];
#pragma omp simd
            for (int j = 0; j < MICRO_COLUMNS; j++)
                sum[i][j] = cpu_fma(x, b[p * b_row + j], sum[i][j]);
        }
    }
    if (n_rows == MICRO_ROWS && n_columns == MICRO_COLUMNS) {
        for (int i = 0; i < MICRO_ROWS; i++) {
#pragma omp simd
            for (int j = 0; j < MICRO_COLUMNS; j++)
                c[i * c_row + j] = alpha * sum[i][j] + (beta ? c[i * c_row + j] : 0.0f);
        }
        return;
    }
    for (int i = 0; i < n_rows; i++) {
        for (int j = 0; j < n_columns; j++)
            c[i * c_row + j] = alpha * sum[i][j] + (beta ? c[i * c_row + j] : 0.0f);
    }
}

/* A's element (i, p) is a[i * a_row + p * a_step], B's (p, j) is b[p * b_row + j]; all of
 * MICRO_ROWS rows and MICRO_COLUMNS columns are read, so operands are padded. C is written in its
 * first n_rows rows and n_columns columns. beta is 0 (C is not read) or 1. */
static inline void micro_tile(int64_t k, const float *SNUG_RESTRICT a, int64_t a_row,
                              int64_t a_step, const float *SNUG_RESTRICT b, int64_t b_row,
                              float alpha, int beta, float *SNUG_RESTRICT c, int64_t c_row,
                              int64_t n_rows, int64_t n_columns)
{
    micro_expect(k, a, a_row, a_step, b, b_row, c, c_row, n_rows, n_columns);
    micro_sum(k, a, a_row, a_step, b, b_row, alpha, beta, c, c_row, n_rows, n_columns);
}

#ifdef __cplusplus
}
#endif
#endif
