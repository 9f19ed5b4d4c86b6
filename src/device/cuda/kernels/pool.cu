/* pool.cu: maxima and averages over windows, and their gradients: each place gathers from the
 * outputs whose windows have it. */
#include "device/cuda/kernels/window.cuh"

WINDOW_MAP(windows, window)

/* ---- averages -------------------------------------------------------------------------------- */

template <bool GRAD> static enum status average(const struct kernel_ctx *x, const struct op_call *c)
{
    struct window w = pool_window(c);
    return window_sum<windows, GRAD>(x, c, &w, call_bool(c, AVG_POOL_COUNT_PADDING));
}

/* ---- maxima ---------------------------------------------------------------------------------- */

/* The number of a place within the window of output (o0, o1, o2). */
template <typename I>
static __device__ __forceinline__ I number_in_window(const struct window_axes<I> &w, const I *at,
                                                     const I *o)
{
    const window_axis<I> *a = w.axis;
    const I d = at[0] + a[0].pad - o[0] * a[0].stride, h = at[1] + a[1].pad - o[1] * a[1].stride;
    return (d * a[1].kernel + h) * a[2].kernel + at[2] + a[2].pad - o[2] * a[2].stride;
}

/* The first of equals; NaN is larger than anything. */
template <typename T, int N, typename I>
static __global__ void __launch_bounds__(WINDOW_THREADS)
    max_kernel(T *y, uint8_t *index, const T *x, const struct window_axes<I> w)
{
    reach<I> r0, r1;
    auto row = [&](const struct window_place<I> &p) {
        r0 = windows::reads(w.axis[0], p.at[0]);
        r1 = windows::reads(w.axis[1], p.at[1]);
    };
    auto item = [&](const struct window_place<I> &p) {
        const reach<I> r2 = windows::reads(w.axis[2], p.at[2]);
        float best[N];
        pack<uint8_t, N> where = {};
        bool is_first = true;
        for (I d = r0.first; d < r0.last; d++) {
            for (I h = r1.first; h < r1.last; h++) {
                const int64_t line = window_row<false>(w, p, d, h);
                for (I i = r2.first; i < r2.last; i++) {
                    const I at[WINDOW_AXES] = {d, h, i};
                    const uint8_t number = (uint8_t)number_in_window(w, at, p.at);
                    float v[N];
                    load_f32(v, x + (line + (int64_t)i * w.n_vectors) * N);
#pragma unroll
                    for (int e = 0; e < N; e++) {
                        if (is_first || v[e] > best[e] || (isnan(v[e]) && !isnan(best[e]))) {
                            best[e] = v[e];
                            where.v[e] = number;
                        }
                    }
                    is_first = false;
                }
            }
        }
        store_f32(y + p.item * N, best);
        *reinterpret_cast<pack<uint8_t, N> *>(index + p.item * N) = where;
    };
    window_each<false>(w, row, item);
}

template <typename T, int N, typename I>
static __global__ void __launch_bounds__(WINDOW_THREADS)
    max_grad_kernel(T *dx, const T *dy, const uint8_t *index, const struct window_axes<I> w)
{
    reach<I> r0, r1;
    auto row = [&](const struct window_place<I> &p) {
        r0 = windows::readers(w.axis[0], p.at[0]);
        r1 = windows::readers(w.axis[1], p.at[1]);
    };
    auto item = [&](const struct window_place<I> &p) {
        const reach<I> r2 = windows::readers(w.axis[2], p.at[2]);
        float sum[N] = {};
        for (I d = r0.first; d < r0.last; d++) {
            for (I h = r1.first; h < r1.last; h++) {
                const int64_t line = window_row<true>(w, p, d, h);
                for (I i = r2.first; i < r2.last; i++) {
                    const int64_t at = (line + (int64_t)i * w.n_vectors) * N;
                    const I o[WINDOW_AXES] = {d, h, i};
                    const uint8_t number = (uint8_t)number_in_window(w, p.at, o);
                    const pack<uint8_t, N> where =
                        *reinterpret_cast<const pack<uint8_t, N> *>(index + at);
                    float v[N];
                    load_f32(v, dy + at);
#pragma unroll
                    for (int e = 0; e < N; e++)
                        sum[e] += where.v[e] == number ? v[e] : 0.0f;
                }
            }
        }
        store_f32(dx + p.item * N, sum);
    };
    window_each<true>(w, row, item);
}

template <bool GRAD, typename T, int N, typename I>
static void launch_max(const struct kernel_ctx *x, const struct op_call *c, const struct window *w)
{
    struct window_axes<I> axes =
        window_axes_of<I>(w, shape_last(&c->out[0].shape) / N, GRAD, false);
    T *to = (T *)c->out[0].data;
    const T *from = (const T *)c->in[0].data;
    if constexpr (GRAD)
        max_grad_kernel<T, N, I><<<window_blocks(axes), window_block(axes), 0, cuda_stream(x)>>>(
            to, from, (const uint8_t *)c->in[1].data, axes);
    else
        max_kernel<T, N, I><<<window_blocks(axes), window_block(axes), 0, cuda_stream(x)>>>(
            to, (uint8_t *)c->out[1].data, from, axes);
}

template <bool GRAD, typename T, int N>
static void launch_max_sized(const struct kernel_ctx *x, const struct op_call *c,
                             const struct window *w)
{
    if (window_is_small(w, shape_elems(&c->out[0].shape) / N))
        launch_max<GRAD, T, N, int32_t>(x, c, w);
    else
        launch_max<GRAD, T, N, int64_t>(x, c, w);
}

template <bool GRAD> static enum status maximum(const struct kernel_ctx *x, const struct op_call *c)
{
    struct window w = pool_window(c);
    const void *index = GRAD ? c->in[1].data : c->out[1].data;
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        if (window_has_vectors<T>(c) && is_aligned(index, N))
            launch_max_sized<GRAD, T, N>(x, c, &w);
        else
            launch_max_sized<GRAD, T, 1>(x, c, &w);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(max_pool, places, maximum<false>)
CUDA_RUN(max_pool_grad, places, maximum<true>)
CUDA_RUN(avg_pool, places, average<false>)
CUDA_RUN(avg_pool_grad, places, average<true>)
