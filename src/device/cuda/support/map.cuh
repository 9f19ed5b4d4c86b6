/* map.cuh: elementwise kernels at the speed of memory.
 *
 * A thread takes vectors of 16 bytes, two of them before it writes any; what is left over (or
 * everything, when a pointer is not aligned) goes element by element. A function is a struct with
 *
 *     template <bool FAST> static __device__ float at(float a);            map1
 *     template <bool FAST> static __device__ float at(float a, float b);   map2
 *
 * FAST is true for 16-bit storage, whose rounding hides that of the hardware's short exponential
 * and division. An output may lie over an input: each element is read before it is written, by one
 * thread.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_MAP_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_MAP_CUH

#include "device/cuda/support/support.cuh"

static constexpr int MAP_THREADS = 256, MAP_UNROLL = 2;

template <bool FAST> static __device__ __forceinline__ float map_exp(float x)
{
    return FAST ? __expf(x) : expf(x);
}

/* 2^x and 1/x by the hardware alone: two instructions where the compiler would guard denormals with
 * eight more. 0 for what is below 2^-126. */
static __device__ __forceinline__ float map_exp2_short(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float map_inverse_short(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define MAP_LOG2_E 1.44269504089f

/* FAST: the power of a number far below 0 is infinite, its inverse 0. Otherwise the exponential is
 * of a negative number, so nothing overflows. */
template <bool FAST> static __device__ __forceinline__ float map_sigmoid(float x)
{
    if constexpr (FAST) {
        return map_inverse_short(1.0f + map_exp2_short(-MAP_LOG2_E * x));
    } else {
        float e = expf(-fabsf(x));
        return (x < 0.0f ? e : 1.0f) / (1.0f + e);
    }
}

/* cap tanh(x / cap). FAST: tanh t = 1 - 2 / (e^2t + 1), which is as good as f32 in comparison with
 * the cap, not with a small x. */
template <bool FAST> static __device__ __forceinline__ float map_softcap(float x, float cap)
{
    if constexpr (FAST) {
        const float power = map_exp2_short(2.0f * MAP_LOG2_E * x * map_inverse_short(cap));
        return fmaf(-2.0f * cap, map_inverse_short(power + 1.0f), cap);
    } else {
        return cap * tanhf(x / cap);
    }
}

/* Its slope, from what came out. */
template <bool FAST> static __device__ __forceinline__ float map_softcap_slope(float y, float cap)
{
    const float bend = FAST ? y * map_inverse_short(cap) : y / cap;
    return fmaf(-bend, bend, 1.0f);
}

template <typename F, typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    map1_kernel(T *y, const T *a, int64_t n, int64_t n_packs)
{
    constexpr int N = per_16_bytes<T>::n;
    constexpr bool FAST = sizeof(T) == 2;
    const int64_t step = grid_threads();
    for (int64_t i = grid_thread(); i < n_packs; i += MAP_UNROLL * step) {
        float v[MAP_UNROLL][N];
#pragma unroll
        for (int u = 0; u < MAP_UNROLL; u++) {
            if (i + u * step < n_packs)
                load_f32(v[u], a + (i + u * step) * N);
        }
#pragma unroll
        for (int u = 0; u < MAP_UNROLL; u++) {
            if (i + u * step >= n_packs)
                break;
#pragma unroll
            for (int k = 0; k < N; k++)
                v[u][k] = F::template at<FAST>(v[u][k]);
            store_f32(y + (i + u * step) * N, v[u]);
        }
    }
    for (int64_t i = n_packs * N + grid_thread(); i < n; i += step)
        y[i] = from_f32<T>(F::template at<FAST>(to_f32(a[i])));
}

/* b has n_b elements, repeated over a; vectors only when n_b is n or a multiple of N. */
template <typename F, typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    map2_kernel(T *y, const T *a, const T *b, int64_t n, int64_t n_packs, int64_t n_b)
{
    constexpr int N = per_16_bytes<T>::n;
    constexpr bool FAST = sizeof(T) == 2;
    const int64_t step = grid_threads();
    for (int64_t i = grid_thread(); i < n_packs; i += MAP_UNROLL * step) {
        float v[MAP_UNROLL][N], w[MAP_UNROLL][N];
#pragma unroll
        for (int u = 0; u < MAP_UNROLL; u++) {
            int64_t at = i + u * step;
            if (at < n_packs) {
                load_f32(v[u], a + at * N);
                load_f32(w[u], b + (n_b == n ? at : at % (n_b / N)) * N);
            }
        }
#pragma unroll
        for (int u = 0; u < MAP_UNROLL; u++) {
            if (i + u * step >= n_packs)
                break;
#pragma unroll
            for (int k = 0; k < N; k++)
                v[u][k] = F::template at<FAST>(v[u][k], w[u][k]);
            store_f32(y + (i + u * step) * N, v[u]);
        }
    }
    for (int64_t i = n_packs * N + grid_thread(); i < n; i += step) {
        float second = to_f32(b[n_b == n ? i : i % n_b]);
        y[i] = from_f32<T>(F::template at<FAST>(to_f32(a[i]), second));
    }
}

/* Blocks for n elements of which the first n_packs * N go in vectors. */
static inline unsigned map_grid(int64_t n, int64_t n_packs)
{
    return n_packs > 0 ? grid_for(n_packs, MAP_THREADS * MAP_UNROLL)
                       : grid_for(n, MAP_THREADS, 1 << 20);
}

/* y = f(a), out[0] from in[0]. */
template <typename F>
static inline enum status cuda_map1(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *a = (const T *)c->in[0].data;
        int64_t n_packs = is_aligned(y, 16) && is_aligned(a, 16) ? n / per_16_bytes<T>::n : 0;
        map1_kernel<F, T>
            <<<map_grid(n, n_packs), MAP_THREADS, 0, cuda_stream(x)>>>(y, a, n, n_packs);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* y = f(a, b), out[0] from in[0] and in[1]; b's shape is a's or a suffix of it. */
template <typename F>
static inline enum status cuda_map2(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape), n_b = shape_elems(&c->in[1].shape);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        T *y = (T *)c->out[0].data;
        const T *a = (const T *)c->in[0].data;
        const T *b = (const T *)c->in[1].data;
        bool whole = is_aligned(y, 16) && is_aligned(a, 16) && is_aligned(b, 16) &&
                     (n_b == n || n_b % N == 0);
        int64_t n_packs = whole ? n / N : 0;
        map2_kernel<F, T>
            <<<map_grid(n, n_packs), MAP_THREADS, 0, cuda_stream(x)>>>(y, a, b, n, n_packs, n_b);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

#endif
