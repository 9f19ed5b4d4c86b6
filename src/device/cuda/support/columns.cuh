/* columns.cuh: sums down columns in two stages, for bias and weight gradients.
 *
 * Rows are cut into bands; the first stage (the caller's) leaves one row of f32 sums per band in
 * the workspace, the second adds the bands in f64. How many bands there are depends on the shape
 * and on the GPU only, so a sum has the same bits in every run.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_COLUMNS_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_COLUMNS_CUH

#include "device/cuda/support/support.cuh"

/* out[c] = factor * sum over bands of partial[band, c] (+ add[c]); add may be out. Columns from
 * `split` on go to out_b. Several matrices one after the other: n_columns apart in out, n_bands *
 * n_columns apart in partial. */
template <typename T> struct columns_finish {
    T *out, *out_b;
    const T *add;
    const float *partial; /* [n_outer, n_bands, n_columns] */
    int64_t n_bands, n_columns, split;
    double factor;
};

static constexpr int FINISH_LINES = 16;
static constexpr int FINISH_AHEAD = 12; /* bands of a thread on their way at once */

template <typename T>
static __global__ void __launch_bounds__(WARP *FINISH_LINES)
    columns_finish_kernel(const struct columns_finish<T> f)
{
    __shared__ double sums[FINISH_LINES][WARP + 1];
    const int64_t n_tiles = (f.n_columns + WARP - 1) / WARP;
    const int64_t outer = blockIdx.x / n_tiles, column = blockIdx.x % n_tiles * WARP + threadIdx.x;
    double sum = 0.0;
    if (column < f.n_columns) {
        const float *from = f.partial + outer * f.n_bands * f.n_columns + column;
        for (int64_t band = threadIdx.y; band < f.n_bands; band += FINISH_AHEAD * FINISH_LINES) {
            float v[FINISH_AHEAD];
#pragma unroll
            for (int u = 0; u < FINISH_AHEAD; u++) {
                const int64_t at = band + u * FINISH_LINES;
                v[u] = at < f.n_bands ? from[at * f.n_columns] : 0.0f;
            }
#pragma unroll
            for (int u = 0; u < FINISH_AHEAD; u++)
                sum += (double)v[u];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= f.n_columns)
        return;
    for (int line = 1; line < FINISH_LINES; line++)
        sum += sums[line][threadIdx.x];
    sum *= f.factor;
    int64_t at = outer * f.n_columns + column;
    if (f.add)
        sum += (double)to_f32(f.add[at]);
    if (column < f.split)
        f.out[at] = from_f32<T>((float)sum);
    else
        f.out_b[at - f.split] = from_f32<T>((float)sum);
}

/* Second stage into one output, or two of which the first has `split` columns. `add` and `out_b`
 * may be NULL. */
static inline enum status columns_finish_run(const struct kernel_ctx *x, const struct tensor *out,
                                             const struct tensor *out_b, const struct tensor *add,
                                             const float *partial, int64_t n_outer, int64_t n_bands,
                                             int64_t n_columns, double factor)
{
    CUDA_DISPATCH_FLOAT(out->dtype, T, {
        columns_finish<T> f = {};
        f.out = (T *)out->data;
        f.out_b = out_b ? (T *)out_b->data : NULL;
        f.add = add ? (const T *)add->data : NULL;
        f.partial = partial;
        f.n_bands = n_bands;
        f.n_columns = n_columns;
        f.split = out_b ? n_columns / 2 : n_columns;
        f.factor = factor;
        columns_finish_kernel<T><<<grid_for(n_outer * ceil_div(n_columns, WARP), 1),
                                   dim3(WARP, FINISH_LINES), 0, cuda_stream(x)>>>(f);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

#endif
