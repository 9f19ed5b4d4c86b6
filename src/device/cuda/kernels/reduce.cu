/* reduce.cu: sum, mean, max, column sums.
 *
 * Reduced axes next to each other make x a box [n_outer, length, n_inner] of which `length` goes.
 * Sums have two levels: short runs in f32, the runs' sums in f64; so the error does not grow with
 * the length. How x is cut depends on its shape and on the GPU only.
 */
#include "base/compiler.h"
#include "device/cuda/support/any.cuh"
#include "device/cuda/support/columns.cuh"
#include "device/cuda/support/weight.cuh"

static constexpr int THREADS = SUM_THREADS_EACH;

/* ---- n_inner = 1: sums along rows ------------------------------------------------------------ */

static constexpr int CHUNK = SUM_CHUNK, SHORT_ROW = SUM_SHORT_ROW;

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_short_rows(T *y, const T *x, int64_t n_rows, int64_t length, double factor)
{
    int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= n_rows)
        return;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % WARP; i < length; i += WARP)
        sum += to_f32(x[row * length + i]);
    double total = warp_sum((double)sum);
    if (threadIdx.x % WARP == 0)
        y[row] = from_f32<T>((float)(total * factor));
}

/* partial[row, chunk] */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_chunks(double *partial, const T *x, int64_t length, int64_t n_chunks)
{
    constexpr int N = per_16_bytes<T>::n;
    __shared__ double scratch[WARP];
    int64_t row = blockIdx.x / n_chunks, first = blockIdx.x % n_chunks * CHUNK;
    int64_t size = length - first < CHUNK ? length - first : CHUNK;
    const T *from = x + row * length + first;
    float sum = 0.0f;
    int64_t in_vectors = (uintptr_t)from % 16 == 0 ? size / N : 0;
    for (int64_t i = threadIdx.x; i < in_vectors; i += THREADS) {
        float v[N], part = 0.0f;
        load_f32(v, from + i * N);
#pragma unroll
        for (int k = 0; k < N; k++)
            part += v[k];
        sum += part;
    }
    for (int64_t i = in_vectors * N + threadIdx.x; i < size; i += THREADS)
        sum += to_f32(from[i]);
    double total = block_sum<THREADS>((double)sum, scratch);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = total;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_partials(T *y, const double *partial, int64_t n_chunks, double factor)
{
    __shared__ double scratch[WARP];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n_chunks; i += THREADS)
        sum += partial[blockIdx.x * n_chunks + i];
    sum = block_sum<THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        y[blockIdx.x] = from_f32<T>((float)(sum * factor));
}

static enum status sum_along_rows(const struct kernel_ctx *x, const struct op_call *c,
                                  const struct box *box, double factor)
{
    int64_t n_chunks = sum_chunk_count(box), n_rows = box->n_outer;
    double *partial = (double *)x->workspace;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        if (box->length <= SHORT_ROW) {
            sum_short_rows<T><<<grid_for(n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(
                y, in, n_rows, box->length, factor);
        } else {
            sum_chunks<T><<<grid_for(n_rows * n_chunks, 1), THREADS, 0, cuda_stream(x)>>>(
                partial, in, box->length, n_chunks);
            sum_partials<T>
                <<<grid_for(n_rows, 1), THREADS, 0, cuda_stream(x)>>>(y, partial, n_chunks, factor);
        }
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- n_inner > 1: sums down columns ---------------------------------------------------------- */

static constexpr int AHEAD = 8; /* rows of a thread on their way at once */

/* partial[outer, band, column] over x[outer, row, column]. N columns per thread. */
template <int N, typename T>
static __global__ void __launch_bounds__(COLUMNS_LANES *COLUMNS_LINES, COLUMNS_BLOCKS)
    sum_bands(float *partial, const T *x, const struct box box, int64_t n_bands, int64_t n_tiles)
{
    __shared__ float sums[COLUMNS_LINES][COLUMNS_LANES][N + 1];
    int64_t tile = blockIdx.x % n_tiles, i_band = blockIdx.x / n_tiles; /* outer, band */
    int64_t outer = i_band / n_bands, band = i_band % n_bands;
    int64_t band_rows = (box.length + n_bands - 1) / n_bands, first = band * band_rows;
    int64_t last = first + band_rows < box.length ? first + band_rows : box.length;
    int64_t column = (tile * COLUMNS_LANES + threadIdx.x) * N;
    float sum[N] = {};
    if (column < box.n_inner) {
        const T *from = x + outer * box.length * box.n_inner + column;
        for (int64_t row = first + threadIdx.y; row < last; row += AHEAD * COLUMNS_LINES) {
            struct waiting<N, T> x_ahead[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int64_t at = row + u * COLUMNS_LINES;
                x_ahead[u] = {};
                if (at < last)
                    x_ahead[u] = waiting<N, T>::at(from + at * box.n_inner);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                float v[N];
                x_ahead[u].get(v);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[k] += v[k];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        sums[threadIdx.y][threadIdx.x][k] = sum[k];
    __syncthreads();
    /* All threads finish: thread t adds up column t of the tile, and so on. */
    for (int t = (int)(threadIdx.y * COLUMNS_LANES + threadIdx.x); t < COLUMNS_LANES * N;
         t += COLUMNS_LANES * COLUMNS_LINES) {
        int64_t at = tile * COLUMNS_LANES * N + t;
        if (at >= box.n_inner)
            continue;
        float total = 0.0f;
        for (int line = 0; line < COLUMNS_LINES; line++)
            total += sums[line][t / N][t % N];
        partial[i_band * box.n_inner + at] = total;
    }
}

/* out = factor * column sums (+ add). add may be out itself. */
static enum status sum_down_columns(const struct kernel_ctx *x, const struct op_call *c,
                                    const struct box *box, double factor, const struct tensor *add)
{
    int64_t n_bands = sum_band_count(c, &x->env, box);
    float *partial = (float *)x->workspace;
    bool vectors = sum_columns_each(c, box) > 1 && is_aligned(c->in[0].data, 16);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        const T *in = (const T *)c->in[0].data;
        dim3 threads(COLUMNS_LANES, COLUMNS_LINES);
        int64_t n_tiles = ceil_div(box->n_inner, COLUMNS_LANES * (vectors ? N : 1));
        unsigned grid = grid_for(box->n_outer * n_bands * n_tiles, 1);
        if (vectors)
            sum_bands<N, T>
                <<<grid, threads, 0, cuda_stream(x)>>>(partial, in, *box, n_bands, n_tiles);
        else
            sum_bands<1, T>
                <<<grid, threads, 0, cuda_stream(x)>>>(partial, in, *box, n_bands, n_tiles);
    });
    CUDA_TRY(cudaGetLastError());
    return columns_finish_run(x, &c->out[0], NULL, add, partial, box->n_outer, n_bands,
                              box->n_inner, factor);
}

/* ---- other axes between the reduced ones ----------------------------------------------------- */

/* Kept and reduced axes, each a list of lengths and steps in x. */
struct spread {
    int n_kept, n_reduced;
    int64_t kept[MAX_RANK], kept_step[MAX_RANK];
    int64_t reduced[MAX_RANK], reduced_step[MAX_RANK];
};

static struct spread spread_of(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    const struct attr *axes = &c->attrs[0];
    struct spread s = {};
    for (int a = 0; a < x->rank; a++) {
        bool reduced = axes->n_ints == 0;
        for (int i = 0; i < axes->n_ints; i++)
            reduced = reduced || axes->ints[i] == a;
        if (reduced) {
            s.reduced[s.n_reduced] = x->dim[a];
            s.reduced_step[s.n_reduced++] = shape_inner(x, a + 1);
        } else {
            s.kept[s.n_kept] = x->dim[a];
            s.kept_step[s.n_kept++] = shape_inner(x, a + 1);
        }
    }
    return s;
}

/* Element of x for the i-th index over a list of axes, the rest of the index 0. */
static __device__ int64_t spread_at(const int64_t *dim, const int64_t *step, int n_axes, int64_t i)
{
    int64_t at = 0;
    for (int a = n_axes - 1; a >= 0; a--) {
        at += i % dim[a] * step[a];
        i /= dim[a];
    }
    return at;
}

/* A warp per output. */
static __global__ void __launch_bounds__(THREADS)
    sum_any(struct any y, struct any x, __grid_constant__ const struct spread s, int64_t n_out,
            int64_t n_each, double factor)
{
    int64_t o = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (o >= n_out)
        return;
    int64_t base = spread_at(s.kept, s.kept_step, s.n_kept, o);
    double sum = 0.0;
    for (int64_t i = threadIdx.x % WARP; i < n_each; i += WARP)
        sum += any_get(x, base + spread_at(s.reduced, s.reduced_step, s.n_reduced, i));
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        any_set(y, o, sum * factor);
}

static enum status sum_scattered(const struct kernel_ctx *x, const struct op_call *c, bool mean)
{
    int64_t n_out = shape_elems(&c->out[0].shape);
    int64_t n_each = shape_elems(&c->in[0].shape) / n_out;
    sum_any<<<grid_for(n_out, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(
        any_of(&c->out[0]), any_of(&c->in[0]), spread_of(c), n_out, n_each,
        mean ? 1.0 / (double)n_each : 1.0);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- sum, mean, sum_rows --------------------------------------------------------------------- */

static enum status box_sum(const struct kernel_ctx *x, const struct op_call *c, bool mean)
{
    struct box box;
    sum_box(c, &box);
    double factor = mean ? 1.0 / (double)box.length : 1.0;
    return box.n_inner == 1 ? sum_along_rows(x, c, &box, factor)
                            : sum_down_columns(x, c, &box, factor, NULL);
}

static enum status sum_boxes(const struct kernel_ctx *x, const struct op_call *c)
{
    return box_sum(x, c, false);
}

static enum status mean_boxes(const struct kernel_ctx *x, const struct op_call *c)
{
    return box_sum(x, c, true);
}

static enum status sum_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    return sum_scattered(x, c, false);
}

static enum status mean_warps(const struct kernel_ctx *x, const struct op_call *c)
{
    return sum_scattered(x, c, true);
}

static enum status sum_rows_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct box box = box_of(&c->in[0].shape, 0, 0);
    return sum_down_columns(x, c, &box, 1.0, call_has(c, 1) ? &c->in[1] : NULL);
}

/* ---- max: a warp per output where the axis is contiguous, a thread per output elsewhere ------ */

static struct box max_box(const struct op_call *c, const struct tensor *x)
{
    int axis = call_int(c, 0) == -1 ? x->shape.rank - 1 : (int)call_int(c, 0);
    return box_of(&x->shape, axis, axis);
}

/* Lanes that share one output: all of a warp, or one. */
static int lanes_of(const struct box *box)
{
    return box->n_inner == 1 ? WARP : 1;
}

/* A NaN anywhere makes the maximum NaN. */
static __device__ __forceinline__ float max_or_nan(float a, float b)
{
    return b > a || b != b ? b : a;
}

template <int LANES>
static __global__ void __launch_bounds__(THREADS)
    max_kernel(struct any y, struct any x, const struct box box)
{
    int64_t o = grid_thread() / LANES;
    if (o >= box.n_outer * box.n_inner)
        return;
    int64_t at = o / box.n_inner * box.length * box.n_inner + o % box.n_inner;
    float best = -INFINITY;
    for (int64_t j = threadIdx.x % LANES; j < box.length; j += LANES)
        best = max_or_nan(best, any_get_f32(x, at + j * box.n_inner));
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        best = max_or_nan(best, __shfl_xor_sync(0xffffffffu, best, step));
    if (threadIdx.x % LANES == 0)
        any_set_f32(y, o, best);
}

static enum status max_lanes(const struct kernel_ctx *x, const struct op_call *c)
{
    struct box box = max_box(c, &c->in[0]);
    unsigned grid = grid_for(box.n_outer * box.n_inner * lanes_of(&box), THREADS);
    struct any y = any_of(&c->out[0]), in = any_of(&c->in[0]);
    if (lanes_of(&box) == WARP)
        max_kernel<WARP><<<grid, THREADS, 0, cuda_stream(x)>>>(y, in, box);
    else
        max_kernel<1><<<grid, THREADS, 0, cuda_stream(x)>>>(y, in, box);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* The first element equal to y (NaN to NaN) takes dy, the others 0. */
template <int LANES>
static __global__ void __launch_bounds__(THREADS)
    max_grad_kernel(struct any dx, struct any dy, struct any x, struct any y, const struct box box)
{
    int64_t o = grid_thread() / LANES;
    if (o >= box.n_outer * box.n_inner)
        return;
    int64_t at = o / box.n_inner * box.length * box.n_inner + o % box.n_inner;
    float best = any_get_f32(y, o);
    long long first = box.length;
    for (int64_t j = threadIdx.x % LANES; j < box.length && first == box.length; j += LANES) {
        float v = any_get_f32(x, at + j * box.n_inner);
        if (v == best || (v != v && best != best))
            first = j;
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        long long other = __shfl_xor_sync(0xffffffffu, first, step);
        first = other < first ? other : first;
    }
    for (int64_t j = threadIdx.x % LANES; j < box.length; j += LANES)
        any_set_f32(dx, at + j * box.n_inner, j == first ? any_get_f32(dy, o) : 0.0f);
}

static enum status max_grad_lanes(const struct kernel_ctx *x, const struct op_call *c)
{
    struct box box = max_box(c, &c->in[1]);
    unsigned grid = grid_for(box.n_outer * box.n_inner * lanes_of(&box), THREADS);
    struct any dx = any_of(&c->out[0]), dy = any_of(&c->in[0]);
    struct any in = any_of(&c->in[1]), y = any_of(&c->in[2]);
    if (lanes_of(&box) == WARP)
        max_grad_kernel<WARP><<<grid, THREADS, 0, cuda_stream(x)>>>(dx, dy, in, y, box);
    else
        max_grad_kernel<1><<<grid, THREADS, 0, cuda_stream(x)>>>(dx, dy, in, y, box);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

CUDA_RUN(sum, boxes, sum_boxes)
CUDA_RUN(sum, warps, sum_warps)

CUDA_RUN(mean, boxes, mean_boxes)
CUDA_RUN(mean, warps, mean_warps)

CUDA_RUN(sum_rows, bands, sum_rows_bands)

CUDA_RUN(max, lanes, max_lanes)

CUDA_RUN(max_grad, lanes, max_grad_lanes)
