/* tile_math.h: products of the small f32 tiles that attention is made of, in f32, or in bf16
 * with f32 sums where the processor has tile registers. */
#ifndef SNUG_DEVICE_CPU_ATTENTION_TILE_MATH_H
#define SNUG_DEVICE_CPU_ATTENTION_TILE_MATH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operands are row-major; m and n are rounded up to multiples of `rows` and `columns`, and operands
 * are padded that far. */
struct tile_math {
    int64_t rows, columns;
    int64_t strip;       /* rows of A that are best multiplied at once */
    void (*enter)(void); /* by each thread before it multiplies; NULL: nothing */
    void (*leave)(void);
    /* C[m, n] = alpha A[m, k] B[k, n] + beta C; beta is 0 or 1, and alpha is 1 where beta is. */
    void (*product)(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, const float *b,
                    int64_t b_row, float alpha, int beta, float *c, int64_t c_row);
    /* C[m, n] += A^T B with A[k, m]. */
    void (*product_transposed)(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                               const float *b, int64_t b_row, float *c, int64_t c_row);
};

/* `rounded`: bf16 will do, and no tile has more than `width` columns or k. */
const struct tile_math *tile_math_for(bool rounded, int64_t width);

#ifdef __cplusplus
}
#endif
#endif
