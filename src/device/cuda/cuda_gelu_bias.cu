/* cuda_gelu_bias.cu: y = gelu(x + bias), and its gradient together with the bias gradient, in one
 * pass over memory.
 *
 * A block owns a strip of columns and a band of rows:
 *
 *              strip 0    strip 1
 *            +----------+----------+--        a strip: LANES vectors of N columns side by side
 *     band 0 | line 0   |          |          a line: a warp; takes every LINES-th row of the band
 *            | line 1   |          |
 *            | ...      |          |
 *            +----------+----------+--
 *     band 1 |          |          |
 *
 * A thread keeps its columns' bias and their sums in registers. The gradient's sums are of dx
 * before it is rounded, in f32: over a thread's rows, then over the block's lines; each band leaves
 * one line in the workspace, columns_finish adds the lines.
 */
#include "device/cuda/cuda_columns.cuh"
#include "device/cuda/cuda_gelu.cuh"
#include "device/cuda/cuda_weight.cuh"

static constexpr int LANES = WARP, LINES = 8, THREADS = LANES * LINES;
static constexpr int AHEAD = 2;   /* rows of a thread on their way in the gradient */
static constexpr int FORWARD = 4; /* rows of a thread in all */
static constexpr int BLOCKS = 3;  /* of the gradient on a multiprocessor, by their registers */

template <typename T> struct strip_args {
    T *out;
    const T *dy; /* gradient only */
    const T *x;
    struct weight<T> bias;
    float *partial; /* [n_bands, n], gradient only */
    int64_t n_rows, n, band_rows, n_strips;
};

/* A thread's place: its first column, and its rows first, first + LINES, ... below `end`. */
struct place {
    int64_t column, first, end;
};

template <int N, typename T>
static __device__ __forceinline__ struct place place_of(const struct strip_args<T> &a)
{
    const int64_t strip = blockIdx.x % a.n_strips, band = blockIdx.x / a.n_strips;
    const int64_t top = band * a.band_rows, end = top + a.band_rows;
    return {(strip * LANES + threadIdx.x % LANES) * N, top + threadIdx.x / LANES,
            end < a.n_rows ? end : a.n_rows};
}

/* y may be x. */
template <typename F, int N, typename T>
static __global__ void __launch_bounds__(THREADS) gelu_bias_kernel(const struct strip_args<T> a)
{
    constexpr bool FAST = sizeof(T) == 2;
    const struct place p = place_of<N, T>(a);
    if (p.column >= a.n)
        return;
    struct waiting<N, T> x[FORWARD];
#pragma unroll
    for (int u = 0; u < FORWARD; u++) {
        if (p.first + u * LINES < p.end)
            x[u] = waiting<N, T>::at(a.x + (p.first + u * LINES) * a.n + p.column);
    }
    float bias[N];
    weight_load(bias, a.bias, p.column, 0.0f);
#pragma unroll
    for (int u = 0; u < FORWARD; u++) {
        if (p.first + u * LINES >= p.end)
            break;
        float v[N];
        x[u].get(v);
#pragma unroll
        for (int e = 0; e < N; e++)
            v[e] = F::template at<FAST>(v[e] + bias[e]);
        store_f32(a.out + (p.first + u * LINES) * a.n + p.column, v);
    }
}

/* AHEAD rows of a thread, LINES apart. */
template <int N, typename T> struct rows_ahead {
    struct waiting<N, T> dy[AHEAD], x[AHEAD];
};

template <int N, typename T>
static __device__ __forceinline__ void fetch(struct rows_ahead<N, T> &to,
                                             const struct strip_args<T> &a, const struct place &p,
                                             int64_t row)
{
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        const int64_t at = (row + u * LINES) * a.n + p.column;
        if (row + u * LINES < p.end) {
            to.dy[u] = waiting<N, T>::at(a.dy + at);
            to.x[u] = waiting<N, T>::at(a.x + at);
        }
    }
}

/* The thread's rows; dx may be dy or x: an element is read and written by one thread. */
template <typename F, int N, typename T>
static __device__ __forceinline__ void rows_grad(const struct strip_args<T> &a,
                                                 const struct place &p, float (&sum)[N])
{
    constexpr bool FAST = sizeof(T) == 2;
    struct rows_ahead<N, T> next;
    fetch<N, T>(next, a, p, p.first);
    float bias[N];
    weight_load(bias, a.bias, p.column, 0.0f);
    for (int64_t row = p.first; row < p.end; row += AHEAD * LINES) {
        const struct rows_ahead<N, T> now = next;
        fetch<N, T>(next, a, p, row + AHEAD * LINES);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (row + u * LINES >= p.end)
                break;
            float dy[N], x[N];
            now.dy[u].get(dy);
            now.x[u].get(x);
#pragma unroll
            for (int e = 0; e < N; e++) {
                dy[e] = F::template at<FAST>(dy[e], x[e] + bias[e]);
                sum[e] += dy[e];
            }
            store_f32(a.out + (row + u * LINES) * a.n + p.column, dy);
        }
    }
}

template <typename F, int N, typename T>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    gelu_bias_grad_kernel(const struct strip_args<T> a)
{
    __shared__ float sums[LINES][N][LANES];
    const struct place p = place_of<N, T>(a);
    const int64_t strip = blockIdx.x % a.n_strips, band = blockIdx.x / a.n_strips;
    float sum[N] = {};
    if (p.column < a.n)
        rows_grad<F, N, T>(a, p, sum);
#pragma unroll
    for (int e = 0; e < N; e++)
        sums[threadIdx.x / LANES][e][threadIdx.x % LANES] = sum[e];
    __syncthreads();
    const int t = threadIdx.x; /* now a column of the strip; there are at most THREADS */
    const int64_t column = strip * LANES * N + t;
    if (t >= LANES * N || column >= a.n)
        return;
    float total = 0.0f;
#pragma unroll
    for (int line = 0; line < LINES; line++)
        total += sums[line][t % N][t / N];
    a.partial[band * a.n + column] = total;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Columns of a thread, by the shape alone, as workspace must be. */
static int64_t columns_each(const struct op_call *c)
{
    int64_t n = 16 / dtype_size(c->in[0].dtype);
    return shape_last(&c->in[0].shape) % n == 0 ? n : 1;
}

/* As many bands as let all blocks run at once; at least FORWARD rows for each line. */
static int64_t grad_bands(const struct op_call *c, const struct kernel_env *env)
{
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    int64_t n_strips = ceil_div(n, LANES * columns_each(c));
    int64_t want = (int64_t)cuda_libraries_of(env)->n_multiprocessors * BLOCKS / n_strips;
    int64_t most = ceil_div(n_rows, FORWARD * LINES);
    int64_t bands = want < most ? want : most;
    return bands > 1 ? bands : 1;
}

int64_t cuda_gelu_bias_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return grad_bands(c, env) * shape_last(&c->in[0].shape) * (int64_t)sizeof(float);
}

/* The arguments for strips of `each` columns a thread and n_bands bands. */
template <typename T>
static struct strip_args<T> strip_args_of(const struct op_call *c, int bias, int64_t n_bands) {
    struct strip_args<T> a = {
    };
    a.out = (T *)c->out[0].data;
    a.bias = weight_of<T>(c, bias);
    a.n = shape_last(&c->in[0].shape);
    a.n_rows = shape_elems(&c->in[0].shape) / a.n;
    a.band_rows = ceil_div(a.n_rows, n_bands);
    return a;
}

template <typename T>
static bool in_vectors(const struct op_call *c, const struct strip_args<T> &a)
{
    return columns_each(c) > 1 && is_aligned(a.out, 16) && is_aligned(a.dy, 16) &&
           is_aligned(a.x, 16) && weight_aligned(a.bias);
}

template <typename F>
static enum status forward(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_rows = shape_elems(&c->in[0].shape) / shape_last(&c->in[0].shape);
    int64_t n_bands = ceil_div(n_rows, FORWARD * LINES);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        struct strip_args<T> a = strip_args_of<T>(c, 1, n_bands);
        a.x = (const T *)c->in[0].data;
        a.band_rows = FORWARD * LINES;
        bool vectors = in_vectors<T>(c, a);
        a.n_strips = ceil_div(a.n, LANES * (vectors ? N : 1));
        unsigned grid = grid_for(n_bands * a.n_strips, 1);
        if (vectors)
            gelu_bias_kernel<F, N, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        else
            gelu_bias_kernel<F, 1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <typename F>
static enum status backward(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_bands = grad_bands(c, &x->env), n = shape_last(&c->in[0].shape);
    float *partial = (float *)x->workspace;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        struct strip_args<T> a = strip_args_of<T>(c, 2, n_bands);
        a.dy = (const T *)c->in[0].data;
        a.x = (const T *)c->in[1].data;
        a.partial = partial;
        bool vectors = in_vectors<T>(c, a);
        a.n_strips = ceil_div(a.n, LANES * (vectors ? N : 1));
        unsigned grid = grid_for(n_bands * a.n_strips, 1);
        if (vectors)
            gelu_bias_grad_kernel<F, N, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        else
            gelu_bias_grad_kernel<F, 1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    });
    CUDA_TRY(cudaGetLastError());
    return columns_finish_run(x, &c->out[1], NULL, call_has(c, 3) ? &c->in[3] : NULL, partial, 1,
                              n_bands, n, 1.0);
}

enum status cuda_gelu_bias(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? forward<gelu_tanh_fn>(x, c) : forward<gelu_exact_fn>(x, c);
}

enum status cuda_gelu_bias_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? backward<gelu_tanh_grad_fn>(x, c) : backward<gelu_exact_grad_fn>(x, c);
}
