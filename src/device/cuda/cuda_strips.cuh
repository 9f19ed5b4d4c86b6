/* cuda_strips.cuh: how kernels over a matrix divide it when a thread stays in its columns.
 *
 * A block owns a strip of columns and a band of rows:
 *
 *              strip 0    strip 1
 *            +----------+----------+--        a strip: STRIP_LANES vectors of N columns
 *     band 0 | line 0   |          |          a line: a warp, takes every STRIP_LINES-th row
 *            | line 1   |          |
 *            | ...      |          |
 *            +----------+----------+--
 *     band 1 |          |          |
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_STRIPS_CUH
#define SNUG_DEVICE_CUDA_CUDA_STRIPS_CUH

#include "device/cuda/cuda_support.cuh"

static constexpr int STRIP_LANES = WARP, STRIP_LINES = 8;
static constexpr int STRIP_THREADS = STRIP_LANES * STRIP_LINES;

struct strips {
    int64_t n_rows, n_columns, band_rows;
    unsigned n_strips; /* blocks: n_strips of the first band, then those of the second, ... */
};

/* For threads of `each` columns. */
static inline struct strips strips_of(int64_t n_rows, int64_t n_columns, int64_t each,
                                      int64_t band_rows)
{
    struct strips s = {n_rows, n_columns, band_rows,
                       (unsigned)ceil_div(n_columns, STRIP_LANES * each)};
    return s;
}

static inline unsigned strips_grid(const struct strips &s)
{
    return grid_for(ceil_div(s.n_rows, s.band_rows) * s.n_strips, 1);
}

/* A thread's place: its first column, and its rows first, first + STRIP_LINES, ... below `end`. */
struct strip_place {
    int64_t column, first, end;
    unsigned strip, band;
};

template <int N>
static __device__ __forceinline__ struct strip_place strip_place_of(const struct strips &s)
{
    const unsigned strip = blockIdx.x % s.n_strips, band = blockIdx.x / s.n_strips;
    const int64_t top = band * s.band_rows, end = top + s.band_rows;
    return {((int64_t)strip * STRIP_LANES + threadIdx.x % STRIP_LANES) * N,
            top + threadIdx.x / STRIP_LANES, end < s.n_rows ? end : s.n_rows, strip, band};
}

#endif
