/* gemm_blocks.h: the loops around packed matrix products (see "Anatomy of High-Performance
 * Matrix Multiplication", Goto and van de Geijn, 2008): which block of C and of k comes when, and
 * which thread does what. What a tile of C is made with says a struct gemm_tiling.
 *
 *     packed A   one block of block_rows x block_depth that all threads share; it stays in each
 *                core's second-level cache
 *     packed B   one sliver of block_depth x columns per thread
 *
 * Threads take slivers as they become free (a core that is busy with something else takes fewer)
 * and run down the rows of the block with each. Which thread takes what never shows: the sum of an
 * element is cut by k alone.
 *
 * Where C is stored in 16 bits, sums over blocks of k are held in f32 in workspace, for a part of C
 * at a time.
 */
#ifndef SNUG_DEVICE_CPU_PRODUCTS_GEMM_BLOCKS_H
#define SNUG_DEVICE_CPU_PRODUCTS_GEMM_BLOCKS_H

#include "device/cpu/products/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows i .. i + m and columns j .. j + n of C, over k .. k + depth. */
struct gemm_block {
    const struct cpu_gemm *g;
    int64_t i, m, j, n, k, depth;
    bool first, last; /* of the blocks of k */
    void *a;          /* packed A */
    float *sums;      /* [m, n] between blocks of k where C is stored in 16 bits */
};

struct gemm_tiling {
    int64_t rows, columns; /* of A that are packed at once, and of a sliver of B */
    int64_t step;          /* k is packed in whole steps */
    int64_t element_bytes; /* of packed operands */
    int64_t block_rows, block_depth;
    int64_t part_rows, part_columns; /* of C while its sums are in workspace */
    int64_t least_rows;              /* of a block, for one thread to pack a sliver */
    void (*enter)(void);             /* by a thread before it multiplies; NULL: nothing */
    void (*leave)(void);
    /* Rows i .. i + rows of the block's A. */
    void (*pack_a)(const struct gemm_block *s, int64_t i);
    /* Packs the sliver of B from column j and multiplies rows i .. i_end of the block with it. */
    void (*multiply)(const struct gemm_block *s, int64_t i, int64_t i_end, int64_t j, void *sliver);
};

/* Bytes for products of at most this size, whatever C's storage. */
int64_t gemm_blocks_workspace(const struct gemm_tiling *t, int n_threads, int64_t m, int64_t n,
                              int64_t k);

void gemm_blocks_run(const struct gemm_tiling *t, const struct kernel_env *env, void *workspace,
                     const struct cpu_gemm *g);

/* Columns from one row of a block's f32 sums to the next, and where those of row i and column j
 * are: in C itself, or in workspace. */
static inline float *gemm_block_sums(const struct gemm_block *s, int64_t i, int64_t j, int64_t *row)
{
    const struct cpu_gemm *g = s->g;
    bool f32 = g->c_dtype == DTYPE_F32;
    *row = f32 ? g->c_row : s->n;
    if (f32)
        return (float *)g->c + g->c_first + (s->i + i) * g->c_row + s->j + j;
    return s->sums + i * s->n + j;
}

#ifdef __cplusplus
}
#endif
#endif
