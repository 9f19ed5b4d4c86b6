/* gemm.h: matrix products (GEMM) over any mix of f32, bf16 and f16 storage, in f32 arithmetic.
 *
 *     C[m, n] = A[m, k] B[k, n] (+ bias[n]) (+ residual[m, n], or + C)
 *
 * Operands are converted while they are packed, so 16-bit storage costs no copy of a whole matrix.
 * Every element of C is summed over k in an order that depends on k alone: the number of threads
 * does not show in the result.
 */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_GEMM_H
#define SNUG_DEVICE_CPU_PRODUCTS_GEMM_H

#include <stdbool.h>

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element (i, j) is element first + i * row + j * column of data; row or column is 1. */
struct cpu_matrix {
    const void *data;
    enum dtype dtype;
    int64_t first, row, column;
};

struct cpu_gemm {
    int64_t m, n, k;
    struct cpu_matrix a, b;
    void *c; /* row-major, c_row elements from row to row */
    enum dtype c_dtype;
    int64_t c_first, c_row;
    bool add;             /* add to C instead of overwriting it */
    const void *residual; /* laid out as C is, and C itself perhaps; NULL: none */
    const float *bias;    /* [n]; NULL: none */
};

/* What the product is added to, laid out as C is; NULL: nothing. */
static inline const void *cpu_gemm_base(const struct cpu_gemm *g)
{
    return g->add ? g->c : g->residual;
}

/* Bytes that cpu_gemm needs for a product of at most this size, a multiple of 64. */
int64_t cpu_gemm_workspace(const struct kernel_env *env, int64_t m, int64_t n, int64_t k);

/* workspace: 64-byte aligned. Runs on env->n_threads threads. */
void cpu_gemm(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g);

/* Are some rows of C, made by themselves, the bits of these rows of the whole? */
bool cpu_gemm_is_by_rows(const struct cpu_gemm *g);

/* A row-major matrix, and its transpose, in t's memory from element `first`. */
struct cpu_matrix cpu_matrix_of(const struct tensor *t, int64_t first, int64_t row);
struct cpu_matrix cpu_matrix_transposed(struct cpu_matrix a);

#ifdef __cplusplus
}
#endif
#endif
