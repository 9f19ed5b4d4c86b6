/* window.cuh: what kernels over the places of [N, D, H, W, C] share: which place and channels a
 * thread works on, and sums over windows, where each axis is a linear map of its own.
 *
 * A thread makes one vector of channels at one place of the result, then the next along the same
 * row (n, d, h): what belongs to the row is worked out once, as divisions take longer than the
 * memory. Sizes below WINDOW_SMALL and results of fewer than 2^31 vectors are worked out in 32
 * bits for the same reason.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_WINDOW_CUH
#define SNUG_DEVICE_CUDA_KERNELS_WINDOW_CUH

#include "device/cuda/declared/window_maps.h"
#include "device/cuda/support/support.cuh"
#include "ops/window_support.h"

static constexpr int WINDOW_THREADS = 256;

/* The types of window_maps.h for a kind of whole number. */
template <typename I> struct window_types;
template <> struct window_types<int32_t> {
    using axis = struct window_axis_32;
    using reach = struct reach_32;
};
template <> struct window_types<int64_t> {
    using axis = struct window_axis_64;
    using reach = struct reach_64;
};
template <typename I> using window_axis = typename window_types<I>::axis;
template <typename I> using reach = typename window_types<I>::reach;

/* A map by name: its three functions, of both kinds of numbers. */
#define WINDOW_MAP(map, name)                                                                     \
    struct map {                                                                                  \
        static __device__ __forceinline__ struct reach_32 reads(const struct window_axis_32 &a,   \
                                                                int32_t o)                        \
        {                                                                                         \
            return name##_reads_32(&a, o);                                                        \
        }                                                                                         \
        static __device__ __forceinline__ struct reach_64 reads(const struct window_axis_64 &a,   \
                                                                int64_t o)                        \
        {                                                                                         \
            return name##_reads_64(&a, o);                                                        \
        }                                                                                         \
        static __device__ __forceinline__ struct reach_32 readers(const struct window_axis_32 &a, \
                                                                  int32_t i)                      \
        {                                                                                         \
            return name##_readers_32(&a, i);                                                      \
        }                                                                                         \
        static __device__ __forceinline__ struct reach_64 readers(const struct window_axis_64 &a, \
                                                                  int64_t i)                      \
        {                                                                                         \
            return name##_readers_64(&a, i);                                                      \
        }                                                                                         \
        static __device__ __forceinline__ float share(const struct window_axis_32 &a, int32_t o,  \
                                                      int32_t i)                                  \
        {                                                                                         \
            return name##_share_32(&a, o, i);                                                     \
        }                                                                                         \
        static __device__ __forceinline__ float share(const struct window_axis_64 &a, int64_t o,  \
                                                      int64_t i)                                  \
        {                                                                                         \
            return name##_share_64(&a, o, i);                                                     \
        }                                                                                         \
    };

template <typename I> struct window_axes {
    window_axis<I> axis[WINDOW_AXES];
    I n_vectors; /* of channels */
    I row_items; /* vectors in a row of the result */
    int64_t n_rows;
};

/* Where a thread is: `rest` is the sample, `item` its vector among all of the result. */
template <typename I> struct window_place {
    I at[WINDOW_AXES], vector;
    int64_t rest, item;
};

/* Calls row(place) for each row of the result, then item(place) for the thread's vectors in it.
 * The result has the places of y (GRAD: of x). */
template <bool GRAD, typename I, typename ROW, typename ITEM>
static __device__ __forceinline__ void window_each(const struct window_axes<I> &w, ROW row,
                                                   ITEM item)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < w.n_rows; r += step) {
        struct window_place<I> p;
        I i = (I)r;
#pragma unroll
        for (int a = WINDOW_AXES - 2; a >= 0; a--) {
            const I n = GRAD ? w.axis[a].size : w.axis[a].out;
            p.at[a] = i % n;
            i /= n;
        }
        p.rest = i;
        row(p);
        for (I k = (I)threadIdx.x; k < w.row_items; k += (I)blockDim.x) {
            p.at[WINDOW_AXES - 1] = k / w.n_vectors;
            p.vector = k % w.n_vectors;
            p.item = r * w.row_items + k;
            item(p);
        }
    }
}

/* The first of a row of places in the other tensor, in vectors. */
template <bool GRAD, typename I>
static __device__ __forceinline__ int64_t window_row(const struct window_axes<I> &w,
                                                     const struct window_place<I> &p, I d, I h)
{
    const window_axis<I> *a = w.axis;
    int64_t at = p.rest * (GRAD ? a[0].out : a[0].size) + d;
    at = at * (GRAD ? a[1].out : a[1].size) + h;
    return at * (GRAD ? a[2].out : a[2].size) * w.n_vectors + p.vector;
}

/* ---- sums of shares -------------------------------------------------------------------------- */

static constexpr int WINDOW_KEPT = 4; /* shares of an axis that are worked out once */

/* What a place takes along one axis: from the places of `r`, each by its share. M is the map. */
template <class M, bool GRAD, typename I> struct window_shares {
    reach<I> r;
    float kept[WINDOW_KEPT];

    static __device__ __forceinline__ float of(const window_axis<I> &a, I at, I i)
    {
        return GRAD ? M::share(a, i, at) : M::share(a, at, i);
    }
    __device__ __forceinline__ void set(const window_axis<I> &a, I at)
    {
        r = GRAD ? M::readers(a, at) : M::reads(a, at);
#pragma unroll
        for (int k = 0; k < WINDOW_KEPT; k++)
            kept[k] = r.first + k < r.last ? of(a, at, r.first + k) : 0.0f;
    }
    __device__ __forceinline__ float get(const window_axis<I> &a, I at, I i) const
    {
        const I k = i - r.first;
        float share = 0.0f;
        if (k >= WINDOW_KEPT)
            return of(a, at, i);
#pragma unroll
        for (int j = 0; j < WINDOW_KEPT; j++)
            share = k == j ? kept[j] : share; /* indexed by a variable, they would be in memory */
        return share;
    }
};

/* y[o] is the sum of all x[i] by the product of their shares along the axes; dx[i] that of all
 * dy[o]. */
template <class M, bool GRAD, typename T, int N, typename I>
static __global__ void __launch_bounds__(WINDOW_THREADS)
    window_sum_kernel(T *to, const T *from, const struct window_axes<I> w)
{
    struct window_shares<M, GRAD, I> s[WINDOW_AXES];
    auto row = [&](const struct window_place<I> &p) {
        s[0].set(w.axis[0], p.at[0]);
        s[1].set(w.axis[1], p.at[1]);
    };
    auto item = [&](const struct window_place<I> &p) {
        float sum[N] = {};
        s[2].set(w.axis[2], p.at[2]);
        for (I d = s[0].r.first; d < s[0].r.last; d++) {
            const float share_d = s[0].get(w.axis[0], p.at[0], d);
            for (I h = s[1].r.first; h < s[1].r.last; h++) {
                const float share_h = share_d * s[1].get(w.axis[1], p.at[1], h);
                const int64_t at = window_row<GRAD>(w, p, d, h);
                float along[N] = {};
                for (I i = s[2].r.first; i < s[2].r.last; i++) {
                    const float share = s[2].get(w.axis[2], p.at[2], i);
                    float v[N];
                    load_f32(v, from + (at + (int64_t)i * w.n_vectors) * N);
#pragma unroll
                    for (int e = 0; e < N; e++)
                        along[e] += share * v[e];
                }
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += share_h * along[e];
            }
        }
        store_f32(to + p.item * N, sum);
    };
    window_each<GRAD>(w, row, item);
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

/* `grad`: the result has the places of x. */
template <typename I>
static inline struct window_axes<I> window_axes_of(const struct window *w, int64_t n_vectors,
                                                   bool grad, bool flag) {
    const int64_t *of = grad ? w->size : w->out;
    struct window_axes<I> r = {
    };
    for (int a = 0; a < WINDOW_AXES; a++)
        r.axis[a] = {(I)w->size[a],   (I)w->out[a],        (I)w->kernel[a],
                     (I)w->stride[a], (I)w->pad_before[a], flag};
    r.n_vectors = (I)n_vectors;
    r.row_items = (I)(of[WINDOW_AXES - 1] * n_vectors);
    r.n_rows = w->batch * of[0] * of[1];
    return r;
}

/* Threads along a row, as many as it has vectors for, and rows beside each other. */
template <typename I>
static inline dim3 window_block(const struct window_axes<I> &w)
{
    unsigned along = WARP;
    while (along < WINDOW_THREADS && (I)along < w.row_items)
        along *= 2;
    return dim3(along, WINDOW_THREADS / along);
}

template <typename I> static inline unsigned window_blocks(const struct window_axes<I> &w)
{
    return grid_for(w.n_rows, window_block(w).y);
}

template <class M, bool GRAD, typename T, int N, typename I>
static inline void window_sum_sized(const struct kernel_ctx *x, const struct op_call *c,
                                    const struct window *w, bool flag)
{
    struct window_axes<I> axes = window_axes_of<I>(w, shape_last(&c->out[0].shape) / N, GRAD, flag);
    window_sum_kernel<M, GRAD, T, N, I>
        <<<window_blocks(axes), window_block(axes), 0, cuda_stream(x)>>>(
            (T *)c->out[0].data, (const T *)c->in[0].data, axes);
}

template <class M, bool GRAD, typename T, int N>
static inline void window_sum_launch(const struct kernel_ctx *x, const struct op_call *c,
                                     const struct window *w, bool flag)
{
    if (window_is_small(w, shape_elems(&c->out[0].shape) / N))
        window_sum_sized<M, GRAD, T, N, int32_t>(x, c, w, flag);
    else
        window_sum_sized<M, GRAD, T, N, int64_t>(x, c, w, flag);
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
