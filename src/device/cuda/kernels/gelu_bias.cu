/* gelu_bias.cu: y = gelu(x + bias), and its gradient together with the bias gradient (and with
 * y once more), in one pass over memory.
 *
 * In the gradient a block owns a strip of columns, a thread one vector of them, and rows here and
 * there: the blocks of a strip, its bands, take turns, so that all of them together go through
 * memory in its order.
 *
 *                  strip 0    strip 1
 *                +----------+----------+--      a strip: `lanes` vectors of N columns
 *         band 0 | line 0   |          |        lines: the rows that a block takes at a time
 *                | line 1   |          |
 *         band 1 | line 0   |          |
 *                | ...      |          |
 *                +----------+----------+--
 *         band 0 | line 0   |          |        and once more, n_bands * lines rows further on
 *
 * Rows on their way wait in shared memory, where the hardware copies them without registers
 * (copies.cuh): STAGES of each thread, one of which is worked on. A thread reads only what it
 * has sent for, so no thread waits for another. It keeps its columns' bias and sums in registers.
 * The sums are of dx before it is rounded, in f32: over a thread's rows, then over the block's
 * lines; each band leaves one line in the workspace, columns_finish adds the lines.
 */
#include "device/cuda/declared/elementwise.h"
#include "device/cuda/kernels/gelu.cuh"
#include "device/cuda/support/columns.cuh"
#include "device/cuda/support/copies.cuh"
#include "device/cuda/support/map.cuh"
#include "device/cuda/support/weight.cuh"

static constexpr int FORWARD = 2; /* vectors of a thread on their way */
static constexpr int GRAD_THREADS = GELU_GRAD_THREADS, STAGES = GELU_STAGES;
static constexpr int BLOCKS = GELU_BLOCKS;

template <typename T> struct gelu_bias_args {
    T *out;
    const T *x;
    struct weight<T> bias;
    int64_t n_columns;

    /* Of the gradient. Blocks are n_strips of the first band, then those of the second, ... */
    const T *dy;
    T *y;           /* NULL: not wanted */
    float *partial; /* [bands, columns] */
    int64_t n_rows;
    unsigned n_strips, n_bands, lanes, lines;
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

/* A thread's place: its first column, and its rows first, first + step, ... */
struct strip_place {
    int64_t column, first, step;
    unsigned lane, line, band;
};

template <int N, typename T>
static __device__ __forceinline__ struct strip_place place_of(const struct gelu_bias_args<T> &a)
{
    struct strip_place p;
    const unsigned strip = blockIdx.x % a.n_strips;
    p.band = blockIdx.x / a.n_strips;
    p.lane = threadIdx.x % a.lanes;
    p.line = threadIdx.x / a.lanes;
    p.column = ((int64_t)strip * a.lanes + p.lane) * N;
    p.first = (int64_t)p.band * a.lines + p.line;
    p.step = (int64_t)a.n_bands * a.lines;
    return p;
}

/* A thread's vector of a row: whole, or where WHOLE is not so, element by element as far as
 * `n_inside`. */
template <bool WHOLE, typename T>
static __device__ __forceinline__ void fetch(uint4 *to, const T *from, int n_inside)
{
    constexpr int N = per_16_bytes<T>::n;
    if constexpr (WHOLE) {
        copy_16(to, from);
    } else {
        union {
            T elements[N];
            uint4 vector;
        } v;
#pragma unroll
        for (int e = 0; e < N; e++)
            v.elements[e] = e < n_inside ? from[e] : from_f32<T>(0.0f);
        *to = v.vector;
    }
}

template <bool WHOLE, typename T, int N>
static __device__ __forceinline__ void put(T *to, const float (&v)[N], int n_inside)
{
    if constexpr (WHOLE) {
        store_vector(to, v);
    } else {
#pragma unroll
        for (int e = 0; e < N; e++) {
            if (e < n_inside)
                to[e] = from_f32<T>(v[e]);
        }
    }
}

template <bool WHOLE, typename T, int N>
static __device__ __forceinline__ void bias_load(float (&v)[N], const struct gelu_bias_args<T> &a,
                                                 int64_t column, int n_inside)
{
    if constexpr (WHOLE) {
        weight_load(v, a.bias, column, 0.0f);
    } else {
#pragma unroll
        for (int e = 0; e < N; e++)
            v[e] = e < n_inside ? weight_at(a.bias, column + e, 0.0f) : 0.0f;
    }
}

/* The thread's rows; dx may be dy or x, and y the other: an element is read and written by one
 * thread, which sends for other rows only. `ring` is the thread's place in the first stage. */
template <bool WITH_Y, typename F, bool WHOLE, typename T, int N>
static __device__ __forceinline__ void rows_grad(const struct gelu_bias_args<T> &a,
                                                 const struct strip_place &p, uint4 *ring,
                                                 float (&sum)[N])
{
    constexpr bool FAST = sizeof(T) == 2;
    const unsigned beside = blockDim.x; /* from dy to x; twice that to the next stage */
    const int64_t left = a.n_columns - p.column;
    const int n_inside = left < N ? (int)left : N;
    const int64_t first = p.first * a.n_columns + p.column, step = p.step * a.n_columns;
    const int64_t end = a.n_rows * a.n_columns; /* at >= end: the row is beyond the last */
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
        if (first + s * step < end) {
            fetch<WHOLE>(ring + 2 * s * beside, a.dy + first + s * step, n_inside);
            fetch<WHOLE>(ring + (2 * s + 1) * beside, a.x + first + s * step, n_inside);
        }
        copies_commit();
    }
    float bias[N];
    bias_load<WHOLE>(bias, a, p.column, n_inside);
    uint4 *stage = ring;
    int s = 0;
    for (int64_t at = first; at < end; at += step) {
        copies_wait<STAGES - 1>();
        float dy[N], x[N];
        raw_get<T>(dy, raw_load(stage));
        raw_get<T>(x, raw_load(stage + beside));
#pragma unroll
        for (int e = 0; e < N; e++) {
            dy[e] *= F::template slope<FAST>(x[e] + bias[e], x[e]);
            sum[e] = __fadd_rn(sum[e], dy[e]); /* dx and its sum: never joined */
        }
        put<WHOLE>(a.out + at, dy, n_inside);
        if constexpr (WITH_Y)
            put<WHOLE>(a.y + at, x, n_inside);
        if (at + STAGES * step < end) {
            fetch<WHOLE>(stage, a.dy + at + STAGES * step, n_inside);
            fetch<WHOLE>(stage + beside, a.x + at + STAGES * step, n_inside);
        }
        copies_commit();
        s = s + 1 == STAGES ? 0 : s + 1;
        stage = ring + 2 * (unsigned)s * beside;
    }
}

template <bool WITH_Y, typename F, bool WHOLE, typename T>
static __global__ void __launch_bounds__(GRAD_THREADS, BLOCKS)
    gelu_bias_grad_kernel(const struct gelu_bias_args<T> a)
{
    constexpr int N = per_16_bytes<T>::n;
    extern __shared__ uint4 ring[]; /* [STAGES][dy, x][threads]; then [N][threads] sums */
    const struct strip_place p = place_of<N>(a);
    float sum[N] = {};
    if (p.column < a.n_columns)
        rows_grad<WITH_Y, F, WHOLE>(a, p, ring + threadIdx.x, sum);
    float *sums = reinterpret_cast<float *>(ring);
    __syncthreads(); /* everybody's rows are done with */
#pragma unroll
    for (int e = 0; e < N; e++)
        sums[e * blockDim.x + threadIdx.x] = sum[e];
    __syncthreads();
    if (p.line != 0)
        return;
#pragma unroll
    for (int e = 0; e < N; e++) {
        float total = 0.0f;
        for (unsigned line = 0; line < a.lines; line++)
            total += sums[e * blockDim.x + line * a.lanes + p.lane];
        if (p.column + e < a.n_columns)
            a.partial[p.band * a.n_columns + p.column + e] = total;
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

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
    int64_t n = 16 / dtype_size(c->in[0].dtype);
    return a.n_columns % n == 0 && is_aligned(a.out, 16) && is_aligned(a.y, 16) &&
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

template <bool WITH_Y, typename F, bool WHOLE, typename T>
static enum status launch_grad(const struct kernel_ctx *x, const struct gelu_bias_args<T> &a)
{
    unsigned n_threads = a.lanes * a.lines;
    size_t n_bytes = sizeof(uint4) * 2 * STAGES * n_threads;
    TRY(cuda_allow_shared(gelu_bias_grad_kernel<WITH_Y, F, WHOLE, T>, (int)n_bytes));
    gelu_bias_grad_kernel<WITH_Y, F, WHOLE, T>
        <<<a.n_strips * a.n_bands, n_threads, n_bytes, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <bool WITH_Y, typename F>
static enum status backward(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct strip_cut cut = gelu_strip_cut(c, &x->env);
    int64_t n = shape_last(&c->in[0].shape);
    float *partial = (float *)x->workspace;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        struct gelu_bias_args<T> a = gelu_bias_args_of<T>(c, 2);
        a.y = WITH_Y ? (T *)c->out[2].data : NULL;
        a.partial = partial;
        a.n_rows = shape_rows(&c->in[0].shape);
        a.n_strips = cut.n_strips;
        a.n_bands = cut.n_bands;
        a.lanes = cut.lanes;
        a.lines = cut.lines;
        TRY((in_vectors<T>(c, a) ? launch_grad<WITH_Y, F, true, T>(x, a)
                                 : launch_grad<WITH_Y, F, false, T>(x, a)));
    });
    return columns_finish_run(x, &c->out[1], NULL, call_has(c, 3) ? &c->in[3] : NULL, partial, 1,
                              cut.n_bands, n, 1.0);
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
