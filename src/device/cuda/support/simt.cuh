/* simt.cuh: a tile of a product in f32 arithmetic, of operands of any dtype and layout, without
 * tensor cores: for what is small, or must keep f32.
 *
 * A block of 256 threads makes SIMT_TILE x SIMT_TILE results, 4 x 4 a thread: those of rows ty + 16
 * i and columns tx + 16 j.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_SIMT_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_SIMT_CUH

#include "device/cuda/declared/experts.h"
#include "device/cuda/support/any.cuh"

enum { SIMT_THREADS = 256, SIMT_EACH = 4, SIMT_SIDE = 16, SIMT_TERMS = 16 };

/* Element (i, j) is element first + i * row + j * column of x. */
struct any_matrix {
    struct any x;
    int64_t first, row, column;
};

struct simt_tiles {
    float a[SIMT_TERMS][SIMT_TILE + 1], b[SIMT_TERMS][SIMT_TILE + 1];
};

/* to[k][i] = m(row + i, term + k), zeros outside [n_rows, n_terms); neighbouring threads read
 * neighbouring elements. Terms lie along the columns of m. */
static __device__ __forceinline__ void simt_load(float (&to)[SIMT_TERMS][SIMT_TILE + 1],
                                                 const struct any_matrix &m, int64_t row,
                                                 int64_t n_rows, int64_t term, int64_t n_terms)
{
#pragma unroll
    for (int turn = 0; turn < SIMT_TILE * SIMT_TERMS / SIMT_THREADS; turn++) {
        const int at = turn * SIMT_THREADS + (int)threadIdx.x;
        const int i = m.column == 1 ? at / SIMT_TERMS : at % SIMT_TILE;
        const int k = m.column == 1 ? at % SIMT_TERMS : at / SIMT_TILE;
        const bool inside = row + i < n_rows && term + k < n_terms;
        to[k][i] =
            inside ? any_get_f32(m.x, m.first + (row + i) * m.row + (term + k) * m.column) : 0.0f;
    }
}

/* sum(i, j) = sum over terms [first, last) of a(row + i, term) b(column + j, term). */
static __device__ __forceinline__ void
simt_product(float (&sum)[SIMT_EACH][SIMT_EACH], struct simt_tiles &tiles,
             const struct any_matrix &a, int64_t row, int64_t n_rows, const struct any_matrix &b,
             int64_t column, int64_t n_columns, int64_t first, int64_t last)
{
    const int tx = threadIdx.x % SIMT_SIDE, ty = threadIdx.x / SIMT_SIDE;
    for (int64_t term = first; term < last; term += SIMT_TERMS) {
        simt_load(tiles.a, a, row, n_rows, term, last);
        simt_load(tiles.b, b, column, n_columns, term, last);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < SIMT_TERMS; k++) {
            float left[SIMT_EACH], right[SIMT_EACH];
#pragma unroll
            for (int i = 0; i < SIMT_EACH; i++) {
                left[i] = tiles.a[k][ty + SIMT_SIDE * i];
                right[i] = tiles.b[k][tx + SIMT_SIDE * i];
            }
#pragma unroll
            for (int i = 0; i < SIMT_EACH; i++) {
#pragma unroll
                for (int j = 0; j < SIMT_EACH; j++)
                    sum[i][j] += left[i] * right[j];
            }
        }
        __syncthreads();
    }
}

#endif
