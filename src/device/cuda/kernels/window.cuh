/* window.cuh: what kernels over the places of [N, D, H, W, C] share: which place and channels a
 * thread works on, and sums over windows, where each axis is a linear map of its own.
 *
 * A thread makes one vector of channels at one place of the result. Sizes below WINDOW_SMALL and
 * results of fewer than 2^31 vectors are worked out in 32 bits: 64-bit divisions would take longer
 * than the memory.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_WINDOW_CUH
#define SNUG_DEVICE_CUDA_KERNELS_WINDOW_CUH

#include "device/cuda/support/support.cuh"
#include "ops/window_support.h"

static constexpr int WINDOW_THREADS = 256, WINDOW_SMALL = 1 << 14;

/* One axis of a window (ops/window_support.h), and what the op's attributes add to it. */
template <typename I> struct window_axis {
    I size, out, kernel, stride, pad;
    bool flag; /* as the map has it */
};

template <typename I> struct window_axes {
    struct window_axis<I> axis[WINDOW_AXES];
    I n_vectors; /* of channels */
};

/* Places first .. last - 1. */
template <typename I> struct reach {
    I first, last;
};

/* Where a thread is: `rest` is the sample. */
template <typename I> struct window_place {
    I at[WINDOW_AXES], vector;
    int64_t rest;
};

/* Item i of a result over the places of y (GRAD: of x). */
template <bool GRAD, typename I>
static __device__ __forceinline__ struct window_place<I>
window_place_of(const struct window_axes<I> &w, int64_t item) {
    struct window_place<I> p;
    I i;
    if constexpr (sizeof(I) == 4) {
        i = (I)item;
        p.vector = i % w.n_vectors;
        i /= w.n_vectors;
    } else {
        p.vector = item % w.n_vectors;
        i = item / w.n_vectors;
    }
#pragma unroll
    for (int a = WINDOW_AXES - 1; a >= 0; a--) {
        const I n = GRAD ? w.axis[a].size : w.axis[a].out;
        p.at[a] = i % n;
        i /= n;
    }
    p.rest = i;
    return p;
}

/* The first of a row of places in the other tensor, in vectors. */
template <bool GRAD, typename I>
static __device__ __forceinline__ int64_t window_row(const struct window_axes<I> &w,
                                                     const struct window_place<I> &p, I d, I h)
{
    const struct window_axis<I> *a = w.axis;
    int64_t at = p.rest * (GRAD ? a[0].out : a[0].size) + d;
    at = at * (GRAD ? a[1].out : a[1].size) + h;
    return at * (GRAD ? a[2].out : a[2].size) * w.n_vectors + p.vector;
}

/* The window of output o along an axis, cut off at the ends of x. */
template <typename I>
static __device__ __forceinline__ struct reach<I> window_reads(const struct window_axis<I> &a,
                                                               I o) {
    const I from = o * a.stride - a.pad;
    return {max(from, (I)0), min(from + a.kernel, a.size)};
}

/* The outputs that have place i in their windows. */
template <typename I>
static __device__ __forceinline__ struct reach<I> window_readers(const struct window_axis<I> &a,
                                                                 I i) {
    const I from = i + a.pad - a.kernel + 1;
    return {from <= 0 ? (I)0 : (from + a.stride - 1) / a.stride,
            min((i + a.pad) / a.stride + 1, a.out)};
}

/* ---- sums of shares -------------------------------------------------------------------------- */

/* A map M says which places an output reads, which outputs read a place, and the share that place i
 * has in output o along an axis (0 where it has none):
 *
 *     reach reads(axis, o);  reach readers(axis, i);  float share(axis, o, i);
 *
 * y[o] is the sum of all x[i] by the product of their shares; dx[i] that of all dy[o]. */
template <class M, bool GRAD, typename T, int N, typename I>
static __global__ void __launch_bounds__(WINDOW_THREADS)
    window_sum_kernel(T *to, const T *from, const struct window_axes<I> w, int64_t n_items)
{
    enum { KEPT = 4 }; /* shares of the last axis, which every row needs again */
    for (int64_t item = grid_thread(); item < n_items; item += grid_threads()) {
        const struct window_place<I> p = window_place_of<GRAD>(w, item);
        struct reach<I> r[WINDOW_AXES];
        float kept[KEPT], sum[N] = {};
#pragma unroll
        for (int a = 0; a < WINDOW_AXES; a++)
            r[a] = GRAD ? M::readers(w.axis[a], p.at[a]) : M::reads(w.axis[a], p.at[a]);
        auto share = [&](int a, I i) {
            return GRAD ? M::share(w.axis[a], i, p.at[a]) : M::share(w.axis[a], p.at[a], i);
        };
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            kept[k] = r[2].first + k < r[2].last ? share(2, r[2].first + k) : 0.0f;
        for (I d = r[0].first; d < r[0].last; d++) {
            const float share_d = share(0, d);
            for (I h = r[1].first; h < r[1].last; h++) {
                const float share_h = share_d * share(1, h);
                const int64_t row = window_row<GRAD>(w, p, d, h);
                float along[N] = {};
                for (I i = r[2].first; i < r[2].last; i++) {
                    const I k = i - r[2].first;
                    const float s = k < KEPT ? kept[k] : share(2, i);
                    float v[N];
                    load_f32(v, from + (row + (int64_t)i * w.n_vectors) * N);
#pragma unroll
                    for (int e = 0; e < N; e++)
                        along[e] += s * v[e];
                }
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += share_h * along[e];
            }
        }
        store_f32(to + item * N, sum);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static inline bool window_is_small(const struct window *w, int64_t n_items)
{
    bool small = n_items <= INT32_MAX;
    for (int a = 0; a < WINDOW_AXES; a++)
        small = small && w->size[a] < WINDOW_SMALL && w->out[a] < WINDOW_SMALL &&
                w->kernel[a] < WINDOW_SMALL && w->stride[a] < WINDOW_SMALL &&
                w->pad_before[a] < WINDOW_SMALL;
    return small;
}

template <typename I>
static inline struct window_axes<I> window_axes_of(const struct window *w, int64_t n_vectors,
                                                   bool flag) {
    struct window_axes<I> r = {
    };
    for (int a = 0; a < WINDOW_AXES; a++)
        r.axis[a] = {(I)w->size[a],   (I)w->out[a],        (I)w->kernel[a],
                     (I)w->stride[a], (I)w->pad_before[a], flag};
    r.n_vectors = (I)n_vectors;
    return r;
}

static inline unsigned
window_blocks(int64_t n_items)
{
    return grid_for(n_items, WINDOW_THREADS);
}

template <class M, bool GRAD, typename T, int N>
static inline void window_sum_launch(const struct kernel_ctx *x, const struct op_call *c,
                                     const struct window *w, bool flag)
{
    int64_t n_items = shape_elems(&c->out[0].shape) / N;
    int64_t n_vectors = shape_last(&c->out[0].shape) / N;
    T *to = (T *)c->out[0].data;
    const T *from = (const T *)c->in[0].data;
    if (window_is_small(w, n_items))
        window_sum_kernel<M, GRAD, T, N, int32_t>
            <<<window_blocks(n_items), WINDOW_THREADS, 0, cuda_stream(x)>>>(
                to, from, window_axes_of<int32_t>(w, n_vectors, flag), n_items);
    else
        window_sum_kernel<M, GRAD, T, N, int64_t>
            <<<window_blocks(n_items), WINDOW_THREADS, 0, cuda_stream(x)>>>(
                to, from, window_axes_of<int64_t>(w, n_vectors, flag), n_items);
}

/* Whether channels come in whole vectors of 16 bytes at aligned addresses. */
template <typename T> static inline bool window_has_vectors(const struct op_call *c)
{
    return shape_last(&c->out[0].shape) % per_16_bytes<T>::n == 0 &&
           is_aligned(c->out[0].data, 16) && is_aligned(c->in[0].data, 16);
}

template <class M, bool GRAD>
static inline enum status window_sum(const struct kernel_ctx *x, const struct op_call *c,
                                     const struct window *w, bool flag)
{
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        if (window_has_vectors<T>(c))
            window_sum_launch<M, GRAD, T, per_16_bytes<T>::n>(x, c, w, flag);
        else
            window_sum_launch<M, GRAD, T, 1>(x, c, w, flag);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

#endif
