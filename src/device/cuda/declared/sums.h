/* sums.h: how sums are cut: by shapes and the GPU alone, so that a sum has the same bits in every
 * run and its workspace is known when it is planned. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_SUMS_H
#define SNUG_DEVICE_CUDA_DECLARED_SUMS_H

#include "device/geometry.h"
#include "graph/factored.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Sums down columns in two stages (support/columns.cuh). Blocks of the first: COLUMNS_LANES threads
 * side by side, COLUMNS_LINES rows at a time, COLUMNS_BLOCKS on a multiprocessor. */
enum { COLUMNS_LANES = 32, COLUMNS_LINES = 8, COLUMNS_MAX_BANDS = 1024, COLUMNS_BLOCKS = 4 };

/* Bands for n_rows rows when one band makes n_blocks blocks: as many as let all blocks run at once
 * (a few on a multiprocessor, each with several loads of a thread on their way, are enough), but
 * not fewer than four rows for each of a block's lines. */
int64_t columns_bands(const struct kernel_env *env, int64_t n_rows, int64_t n_blocks);

/* Along rows (n_inner 1) a row is cut into chunks, a block each; short rows take a warp each and
 * need no second stage. */
enum { SUM_THREADS_EACH = 256, SUM_CHUNK = 64 * SUM_THREADS_EACH, SUM_SHORT_ROW = 1024 };
int64_t sum_chunk_count(const struct box *box);

/* Down columns (n_inner above 1): columns of a thread, and bands of rows. */
int64_t sum_columns_each(const struct op_call *c, const struct box *box);
int64_t sum_band_count(const struct op_call *c, const struct kernel_env *env,
                       const struct box *box);

/* sum_squares: elements of a chunk, and how many chunks all inputs make. Small enough that a matrix
 * of a million elements is spread over the whole GPU; but one small tensor is done by one block,
 * which is quicker than two launches. */
enum { SQUARES_THREADS = 512 };
int64_t squares_chunk_elems(const struct op_call *c);
int64_t squares_chunk_count(const struct op_call *c);

/* product_squares: chunks that every row is cut into, so that a few pairs of long rows are spread
 * over the whole GPU. */
int64_t row_product_chunks(const struct op_call *c);

/* ---- adafactor (kernels/adafactor.cu) -------------------------------------------------------- */

/* What its workspace holds, all f64: squares of the parameter's lines and of the step's, the means
 * of the rows' moments of each matrix, and the numbers of each tensor (graph/factored.h). */
enum { ADAFACTOR_NUMBERS = 2 };
struct adafactor_sums {
    int64_t n_lines, n_means, n_tensors;
};
struct adafactor_sums adafactor_sums_of(const struct factored_layout *l);

#ifdef __cplusplus
}
#endif
#endif
