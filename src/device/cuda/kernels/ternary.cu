/* ternary.cu: weights and activations rounded as BitNet b1.58 does, the numbers of the CPU's.
 *
 * Weights: each matrix is cut into as many parts as a block has threads; a block adds up the sizes
 * in one part, and then every block adds up the parts, in one order, before it rounds its share.
 * Activations: a warp takes a short row, a block a long one. */
#include "device/cuda/declared/elementwise.h"
#include "device/cuda/support/support.cuh"
#include "ops/ternary.h"

static constexpr int THREADS = TERNARY_PARTS, SHORT_ROW = 2048;

/* ---- weights --------------------------------------------------------------------------------- */

/* parts[i] = sum of |w| in part i of n elements. Sums of a thread go on in f64 every few elements:
 * there may be millions. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    add_sizes_kernel(double *parts, const T *w, int64_t n)
{
    constexpr int N = per_16_bytes<T>::n;
    __shared__ double scratch[WARP];
    const int64_t step = (int64_t)THREADS * THREADS * N;
    double sum = 0.0;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < n; at += step) {
        float v[N] = {}, part = 0.0f;
        if (at + N <= n && (uintptr_t)w % 16 == 0)
            load_f32(v, w + at);
        else
            for (int k = 0; k < N && at + k < n; k++)
                v[k] = to_f32(w[at + k]);
#pragma unroll
        for (int k = 0; k < N; k++)
            part += fabsf(v[k]);
        sum += (double)part;
    }
    sum = block_sum<THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    round_weights_kernel(T *y, const T *w, const double *parts, int64_t n)
{
    constexpr int N = per_16_bytes<T>::n;
    __shared__ double scratch[WARP];
    const double sum = block_sum<THREADS>(parts[threadIdx.x], scratch);
    const float mean = (float)(sum / (double)n);
    const float inverse = __frcp_rn(mean < TERNARY_LEAST ? TERNARY_LEAST : mean);
    const float scale = __frcp_rn(inverse);
    const bool whole = (uintptr_t)w % 16 == 0 && (uintptr_t)y % 16 == 0;
    for (int64_t at = grid_thread() * N; at < n; at += grid_threads() * N) {
        float v[N] = {};
        const bool full = whole && at + N <= n;
        if (full)
            load_f32(v, w + at);
        else
            for (int k = 0; k < N && at + k < n; k++)
                v[k] = to_f32(w[at + k]);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float r = rintf(__fmul_rn(v[k], inverse));
            r = r < -1.0f ? -1.0f : r; /* what is no number stays so */
            v[k] = (r > 1.0f ? 1.0f : r) * scale;
        }
        if (full)
            store_f32(y + at, v);
        else
            for (int k = 0; k < N && at + k < n; k++)
                y[at + k] = from_f32<T>(v[k]);
    }
}

static enum status weight_parts(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct attr *rows = &c->attrs[TERNARY_ROWS];
    double *parts = (double *)x->workspace;
    int64_t first = 0;
    for (int i = 0; i < rows->n_ints; i++, parts += TERNARY_PARTS) {
        int64_t n = rows->ints[i] * c->in[0].shape.dim[1];
        CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
            const T *w = (const T *)c->in[0].data + first;
            const unsigned grid =
                grid_for(n, (int64_t)THREADS * per_16_bytes<T>::n, grid_full(&x->env, THREADS, 8));
            add_sizes_kernel<T><<<TERNARY_PARTS, THREADS, 0, cuda_stream(x)>>>(parts, w, n);
            round_weights_kernel<T>
                <<<grid, THREADS, 0, cuda_stream(x)>>>((T *)c->out[0].data + first, w, parts, n);
        });
        CUDA_TRY(cudaGetLastError());
        first += n;
    }
    return OK;
}

CUDA_RUN(ternary_weight, parts, weight_parts)

/* ---- activations ----------------------------------------------------------------------------- */

/* y may be x: an element is read and written by one thread, after the maximum. */
template <int G, typename T>
static __global__ void __launch_bounds__(THREADS)
    round_rows_kernel(T *y, const T *x, int64_t n_rows, int64_t n)
{
    __shared__ float scratch[WARP];
    const int64_t row = grid_thread() / G, first = threadIdx.x % G;
    if (row >= n_rows)
        return;
    const T *from = x + row * n;
    float most = TERNARY_LEAST;
    for (int64_t i = first; i < n; i += G)
        most = fmaxf(most, fabsf(to_f32(from[i])));
    const float inverse = __fdiv_rn(INT8_MOST, group_max<G>(most, scratch));
    for (int64_t i = first; i < n; i += G)
        y[row * n + i] =
            from_f32<T>(__fdiv_rn(rintf(__fmul_rn(to_f32(from[i]), inverse)), inverse));
}

static enum status int8_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->out[0].shape), n_rows = shape_rows(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        if (n <= SHORT_ROW)
            round_rows_kernel<WARP, T>
                <<<grid_for(n_rows, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(y, in, n_rows,
                                                                                   n);
        else
            round_rows_kernel<THREADS, T>
                <<<grid_for(n_rows, 1), THREADS, 0, cuda_stream(x)>>>(y, in, n_rows, n);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(int8_rows, rows, int8_rows)
