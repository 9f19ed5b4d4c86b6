/* channel_rows.cuh: a thread's place in rows of channels that are cut as declared/channel_norm.h
 * says: some channels next to each other, and every few rows of a band of a sample. */
#ifndef SNUG_DEVICE_CUDA_KERNELS_CHANNEL_ROWS_CUH
#define SNUG_DEVICE_CUDA_KERNELS_CHANNEL_ROWS_CUH

#include <type_traits>

#include "device/cuda/declared/channel_norm.h"
#include "device/cuda/support/support.cuh"

/* A thread's channels and the rows of its band; `line` is its first row among them. */
struct channel_spot {
    int64_t sample, band, channel, first, last;
    int line;
    bool is_there;
};

template <int N>
static __device__ struct channel_spot channel_spot_of(const struct channel_extent &e,
                                                      const struct channel_cut &cut)
{
    const int lane = threadIdx.x % cut.lanes;
    struct channel_spot s;
    int64_t i = blockIdx.x;
    const int64_t tile = i % cut.n_tiles;
    i /= cut.n_tiles;
    s.band = i % cut.n_bands;
    s.sample = i / cut.n_bands;
    s.channel = (tile * cut.lanes + lane) * N;
    s.line = threadIdx.x / cut.lanes;
    s.first = s.band * cut.band_rows;
    s.last = min(s.first + cut.band_rows, e.n_places);
    s.is_there = s.line < cut.lines && s.channel < e.channels;
    return s;
}

/* The element at the thread's first channel in a row of its sample. */
static __device__ __forceinline__ int64_t channel_at(const struct channel_extent &e,
                                                     const struct channel_spot &s, int64_t row)
{
    return (s.sample * e.n_places + row) * e.channels + s.channel;
}

/* Rows of a thread that are on their way at once: as they lie in memory they take few registers. */
template <typename T, int N, int U> struct channel_lines {
    pack<T, N> v[U];

    __device__ __forceinline__ void load(const void *from, const struct channel_extent &e,
                                         const struct channel_cut &cut,
                                         const struct channel_spot &s, int64_t row)
    {
#pragma unroll
        for (int u = 0; u < U; u++)
            v[u] = *reinterpret_cast<const pack<T, N> *>((const T *)from +
                                                         channel_at(e, s, row + u * cut.lines));
    }
};

/* Calls some(row, number) for the thread's rows of its band: U of them, and one by one what is left
 * over. */
template <int U, typename F>
static __device__ __forceinline__ void channel_each_row(const struct channel_cut &cut,
                                                        const struct channel_spot &s, F some)
{
    const int64_t step = cut.lines;
    int64_t row = s.first + s.line;
    for (; row + (U - 1) * step < s.last; row += U * step)
        some(row, std::integral_constant<int, U>());
    for (; row < s.last; row += step)
        some(row, std::integral_constant<int, 1>());
}

/* One sum of every thread, added up over the lines of the block, line after line, into
 * to[channel]. */
template <int N>
static __device__ void channel_sum_lines(const struct channel_cut &cut, int64_t n_left,
                                         const double (&sum)[N], double *to)
{
    __shared__ double lines[CHANNEL_THREADS * N];
    const int n = cut.lanes * N;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++)
        lines[threadIdx.x * N + k] = sum[k];
    __syncthreads();
    for (int i = threadIdx.x; i < n && i < n_left; i += CHANNEL_THREADS) {
        double total = 0.0;
        for (int line = 0; line < cut.lines; line++)
            total += lines[line * n + i];
        to[i] = total;
    }
}

static inline unsigned channel_blocks(const struct channel_extent *e, const struct channel_cut *cut)
{
    return grid_for(e->n_samples * cut->n_bands * cut->n_tiles, 1);
}

#endif
