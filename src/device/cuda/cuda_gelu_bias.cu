/* cuda_gelu_bias.cu: y = gelu(x + bias), and its gradient together with the bias gradient (and with
 * y once more), in one pass over memory.
 *
 * In the gradient a block owns a strip of columns and a band of rows:
 *
 *              strip 0    strip 1
 *            +----------+----------+--        a strip: STRIP_LANES vectors of N columns
 *     band 0 | line 0   |          |          a line: a warp, takes every STRIP_LINES-th row
 *            | line 1   |          |
 *            | ...      |          |
 *            +----------+----------+--
 *     band 1 |          |          |
 *
 * A thread stays in its columns and keeps their bias and their sums in registers. The sums are of
 * dx before it is rounded, in f32: over a thread's rows, then over the block's lines; each band
 * leaves one line in the workspace, columns_finish adds the lines.
 */
#include "device/cuda/cuda_columns.cuh"
#include "device/cuda/cuda_gelu.cuh"
#include "device/cuda/cuda_map.cuh"
#include "device/cuda/cuda_weight.cuh"

static constexpr int FORWARD = 2; /* vectors of a thread on their way */
static constexpr int STRIP_LANES = WARP, STRIP_LINES = 8;
static constexpr int STRIP_THREADS = STRIP_LANES * STRIP_LINES;
static constexpr int LEAST = 4;  /* rows of a line */
static constexpr int AHEAD = 2;  /* rows of a thread on their way */
static constexpr int BLOCKS = 3; /* of the gradient on a multiprocessor, by their registers */

template <typename T> struct gelu_bias_args {
    T *out;
    const T *x;
    struct weight<T> bias;
    int64_t n_columns;

    /* Of the gradient. Blocks are n_strips of the first band, then those of the second, ... */
    const T *dy;
    T *y;           /* NULL: not wanted */
    float *partial; /* [bands, columns] */
    int64_t n_rows, band_rows;
    unsigned n_strips;
};

/* y may be x. Vectors in the order of memory: a thread per column, as the gradient has it, reads
 * half as fast. The bias comes from the cache. */
template <typename F, int N, typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    gelu_bias_kernel(const struct gelu_bias_args<T> a, int64_t n_packs)
{
    constexpr bool FAST = sizeof(T) == 2;
    const int64_t step = grid_threads(), row_packs = a.n_columns / N;
    const bool small = n_packs <= UINT32_MAX; /* long divisions take several times longer */
    for (int64_t i = grid_thread(); i < n_packs; i += FORWARD * step) {
        struct waiting<N, T> x[FORWARD];
#pragma unroll
        for (int u = 0; u < FORWARD; u++) {
            if (i + u * step < n_packs)
                x[u] = waiting<N, T>::at(a.x + (i + u * step) * N);
        }
#pragma unroll
        for (int u = 0; u < FORWARD; u++) {
            const int64_t at = i + u * step;
            if (at >= n_packs)
                break;
            const int64_t column =
                small ? (int64_t)((uint32_t)at % (uint32_t)row_packs) : at % row_packs;
            float v[N], bias[N];
            x[u].get(v);
            weight_load(bias, a.bias, column * N, 0.0f);
#pragma unroll
            for (int e = 0; e < N; e++)
                v[e] = F::template at<FAST>(v[e] + bias[e]);
            store_f32(a.out + at * N, v);
        }
    }
}

/* A thread's place: its first column, and its rows first, first + STRIP_LINES, ... below `end`. */
struct strip_place {
    int64_t column, first, end;
    unsigned strip, band;
};

template <int N, typename T>
static __device__ __forceinline__ struct strip_place place_of(const struct gelu_bias_args<T> &a)
{
    const unsigned strip = blockIdx.x % a.n_strips, band = blockIdx.x / a.n_strips;
    const int64_t top = band * a.band_rows, end = top + a.band_rows;
    return {((int64_t)strip * STRIP_LANES + threadIdx.x % STRIP_LANES) * N,
            top + threadIdx.x / STRIP_LANES, end < a.n_rows ? end : a.n_rows, strip, band};
}

/* AHEAD rows of a thread, STRIP_LINES apart. */
template <int N, typename T> struct rows_ahead {
    struct waiting<N, T> dy[AHEAD], x[AHEAD];
};

template <int N, typename T>
static __device__ __forceinline__ void fetch(struct rows_ahead<N, T> &to,
                                             const struct gelu_bias_args<T> &a,
                                             const struct strip_place &p, int64_t row)
{
    const int64_t n = a.n_columns;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        const int64_t at = (row + u * STRIP_LINES) * n + p.column;
        if (row + u * STRIP_LINES < p.end) {
            to.dy[u] = waiting<N, T>::at(a.dy + at);
            to.x[u] = waiting<N, T>::at(a.x + at);
        }
    }
}

/* The thread's rows; dx may be dy or x, and y the other: an element is read and written by one
 * thread. */
template <bool WITH_Y, typename F, int N, typename T>
static __device__ __forceinline__ void rows_grad(const struct gelu_bias_args<T> &a,
                                                 const struct strip_place &p, float (&sum)[N])
{
    constexpr bool FAST = sizeof(T) == 2;
    const int64_t n = a.n_columns;
    struct rows_ahead<N, T> next;
    fetch<N, T>(next, a, p, p.first);
    float bias[N];
    weight_load(bias, a.bias, p.column, 0.0f);
    for (int64_t row = p.first; row < p.end; row += AHEAD * STRIP_LINES) {
        const struct rows_ahead<N, T> now = next;
        fetch<N, T>(next, a, p, row + AHEAD * STRIP_LINES);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (row + u * STRIP_LINES >= p.end)
                break;
            float dy[N], x[N];
            now.dy[u].get(dy);
            now.x[u].get(x);
#pragma unroll
            for (int e = 0; e < N; e++) {
                dy[e] *= F::template slope<FAST>(x[e] + bias[e], x[e]);
                sum[e] = __fadd_rn(sum[e], dy[e]); /* dx and its sum: never joined */
            }
            const int64_t at = (row + u * STRIP_LINES) * n + p.column;
            store_f32(a.out + at, dy);
            if constexpr (WITH_Y)
                store_f32(a.y + at, x);
        }
    }
}

template <bool WITH_Y, typename F, int N, typename T>
static __global__ void __launch_bounds__(STRIP_THREADS, BLOCKS)
    gelu_bias_grad_kernel(const struct gelu_bias_args<T> a)
{
    __shared__ float sums[STRIP_LINES][N][STRIP_LANES];
    const struct strip_place p = place_of<N>(a);
    float sum[N] = {};
    if (p.column < a.n_columns)
        rows_grad<WITH_Y, F, N, T>(a, p, sum);
#pragma unroll
    for (int e = 0; e < N; e++)
        sums[threadIdx.x / STRIP_LANES][e][threadIdx.x % STRIP_LANES] = sum[e];
    __syncthreads();
    const int t = threadIdx.x; /* now a column of the strip; it has at most STRIP_THREADS */
    const int64_t column = (int64_t)p.strip * STRIP_LANES * N + t;
    if (t >= STRIP_LANES * N || column >= a.n_columns)
        return;
    float total = 0.0f;
#pragma unroll
    for (int line = 0; line < STRIP_LINES; line++)
        total += sums[line][t % N][t / N];
    a.partial[p.band * a.n_columns + column] = total;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Columns of a thread, by the shape alone, as workspace must be. */
static int64_t columns_each(const struct op_call *c)
{
    int64_t n = 16 / dtype_size(c->in[0].dtype);
    return shape_last(&c->in[0].shape) % n == 0 ? n : 1;
}

/* Rows of a band of the gradient: as many bands as let all blocks run at once, but at least LEAST
 * rows for each line. */
static int64_t grad_band_rows(const struct op_call *c, const struct kernel_env *env)
{
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    int64_t n_strips = ceil_div(n, STRIP_LANES * columns_each(c));
    int64_t n_bands = (int64_t)cuda_libraries_of(env)->n_multiprocessors * BLOCKS / n_strips;
    int64_t rows = ceil_div(n_rows, n_bands > 1 ? n_bands : 1);
    return rows > LEAST * STRIP_LINES ? rows : LEAST * STRIP_LINES;
}

static int64_t grad_bands(const struct op_call *c, const struct kernel_env *env)
{
    return ceil_div(shape_rows(&c->in[0].shape), grad_band_rows(c, env));
}

int64_t cuda_gelu_bias_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return grad_bands(c, env) * shape_last(&c->in[0].shape) * (int64_t)sizeof(float);
}

template <typename T> static gelu_bias_args<T> gelu_bias_args_of(const struct op_call *c, int bias)
{
    gelu_bias_args<T> a = {};
    a.out = (T *)c->out[0].data;
    a.dy = bias == 2 ? (const T *)c->in[0].data : NULL;
    a.x = (const T *)c->in[bias - 1].data;
    a.bias = weight_of<T>(c, bias);
    a.n_columns = shape_last(&c->in[0].shape);
    return a;
}

template <typename T>
static bool in_vectors(const struct op_call *c, const struct gelu_bias_args<T> &a)
{
    return columns_each(c) > 1 && is_aligned(a.out, 16) && is_aligned(a.y, 16) &&
           is_aligned(a.dy, 16) && is_aligned(a.x, 16) && weight_aligned(a.bias);
}

template <typename F>
static enum status forward(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[0].shape);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        struct gelu_bias_args<T> a = gelu_bias_args_of<T>(c, 1);
        bool vectors = in_vectors<T>(c, a);
        int64_t n_packs = vectors ? n / N : n;
        unsigned grid = grid_for(n_packs, MAP_THREADS * FORWARD);
        if (vectors)
            gelu_bias_kernel<F, N, T><<<grid, MAP_THREADS, 0, cuda_stream(x)>>>(a, n_packs);
        else
            gelu_bias_kernel<F, 1, T><<<grid, MAP_THREADS, 0, cuda_stream(x)>>>(a, n_packs);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <bool WITH_Y, typename F>
static enum status backward(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    float *partial = (float *)x->workspace;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        struct gelu_bias_args<T> a = gelu_bias_args_of<T>(c, 2);
        a.y = WITH_Y ? (T *)c->out[2].data : NULL;
        bool vectors = in_vectors<T>(c, a);
        a.partial = partial;
        a.n_rows = n_rows;
        a.band_rows = grad_band_rows(c, &x->env);
        a.n_strips = (unsigned)ceil_div(n, STRIP_LANES * (vectors ? N : 1));
        unsigned grid = grid_for(grad_bands(c, &x->env) * a.n_strips, 1);
        if (vectors)
            gelu_bias_grad_kernel<WITH_Y, F, N, T><<<grid, STRIP_THREADS, 0, cuda_stream(x)>>>(a);
        else
            gelu_bias_grad_kernel<WITH_Y, F, 1, T><<<grid, STRIP_THREADS, 0, cuda_stream(x)>>>(a);
    });
    CUDA_TRY(cudaGetLastError());
    return columns_finish_run(x, &c->out[1], NULL, call_has(c, 3) ? &c->in[3] : NULL, partial, 1,
                              grad_bands(c, &x->env), n, 1.0);
}

enum status cuda_gelu_bias(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? forward<gelu_tanh_fn>(x, c) : forward<gelu_exact_fn>(x, c);
}

template <bool WITH_Y>
static enum status backward_of(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? backward<WITH_Y, gelu_tanh_fn>(x, c)
                           : backward<WITH_Y, gelu_exact_fn>(x, c);
}

enum status cuda_gelu_bias_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    return backward_of<false>(x, c);
}

enum status cuda_gelu_bias_with_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    return backward_of<true>(x, c);
}
