/* norm_warps.cuh: layer_norm and rms_norm of rows up to 2048 elements (1024 in f32), a warp to
 * a row.
 *
 * A warp takes rows a fixed distance apart and has the next row on its way while it works on one;
 * nothing in the loop waits for other warps. A lane holds Q * 8 elements of a row: its vectors of
 * 16 bytes lie WARP vectors apart. Weights are kept in shared memory in f32.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_NORM_WARPS_CUH
#define SNUG_DEVICE_CUDA_KERNELS_NORM_WARPS_CUH

#include "device/cuda/kernels/norm.cuh"

static constexpr int WARPS_STEP = 8 * WARP; /* elements of a row for each step of Q */
static constexpr int WARPS_THREADS = 256;
static constexpr int WARPS_UNPACKED = 4; /* steps of Q up to which a row is kept in f32 */

/* Steps of Q: what the registers hold, a row being worked on in f32 and the next as it lies in
 * memory. */
static inline int64_t warps_most(enum dtype d)
{
    return dtype_size(d) == 2 ? 8 : 4;
}

static inline bool warps_take(int64_t n, enum dtype d)
{
    return n % (16 / dtype_size(d)) == 0 && n <= warps_most(d) * WARPS_STEP;
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* Where a row's vector in shared memory has its elements e .. e + 3: fours of neighbouring lanes
 * side by side, so that a warp's 16-byte accesses meet no bank twice. */
template <int N> static __device__ __forceinline__ int warps_at(int k, int lane, int e)
{
    return (k * N + e / 4 * 4) * WARP + lane * 4;
}

template <int N>
static __device__ __forceinline__ void warps_get(float (&v)[N], const float *shared, int k,
                                                 int lane)
{
#pragma unroll
    for (int e = 0; e < N; e += 4) {
        const float4 f = *reinterpret_cast<const float4 *>(shared + warps_at<N>(k, lane, e));
        v[e] = f.x, v[e + 1] = f.y, v[e + 2] = f.z, v[e + 3] = f.w;
    }
}

template <int N>
static __device__ __forceinline__ void warps_put(float *shared, const float (&v)[N], int k,
                                                 int lane)
{
#pragma unroll
    for (int e = 0; e < N; e += 4)
        *reinterpret_cast<float4 *>(shared + warps_at<N>(k, lane, e)) =
            make_float4(v[e], v[e + 1], v[e + 2], v[e + 3]);
}

/* sums added to what the vector in shared memory holds; the first to come sets it. */
template <int N>
static __device__ __forceinline__ void warps_add(float *shared, const float (&sums)[N], int k,
                                                 int lane, bool is_first)
{
    float v[N] = {};
    if (!is_first)
        warps_get<N>(v, shared, k, lane);
#pragma unroll
    for (int e = 0; e < N; e++)
        v[e] += sums[e];
    warps_put<N>(shared, v, k, lane);
}

/* The weight to shared memory by the whole block: n_vectors of them, zeros past its end. */
template <typename T>
static __device__ __forceinline__ void warps_share(float *shared, const struct weight<T> &w,
                                                   int n_vectors, int n, float absent)
{
    constexpr int N = per_16_bytes<T>::n;
    for (int i = threadIdx.x; i < n_vectors; i += blockDim.x) {
        float v[N] = {};
        if (i * N < n)
            weight_load(v, w, i * N, absent);
        warps_put<N>(shared, v, i / WARP, i % WARP);
    }
}

/* A lane's vectors of a row, zeros past its end. */
template <int K, typename T>
static __device__ __forceinline__ void warps_fetch(struct raw (&to)[K], const T *row, int lane,
                                                   int n)
{
    constexpr int N = per_16_bytes<T>::n;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int j = (lane + k * WARP) * N;
        to[k] = {};
        if (j < n)
            to[k] = raw_load(row + j);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Blocks that fit on a multiprocessor by their registers. */
template <int Q, typename T> struct warps_blocks {
    static constexpr int n = sizeof(T) == 2 ? (Q <= 3 ? 4 : Q == 4 ? 3 : 2) : (Q <= 3 ? 3 : 2);
};

/* Before another pass over a row: long rows are unpacked again, short ones stay in f32. */
template <int Q, int K> static __device__ __forceinline__ void warps_renew(struct raw (&row)[K])
{
    if constexpr (Q > WARPS_UNPACKED) {
#pragma unroll
        for (int k = 0; k < K; k++)
            raw_renew(row[k]);
    }
}

/* Mean and 1 / standard deviation of the row; mean 0 where not CENTRED. */
template <int Q, bool CENTRED, int K, typename T>
static __device__ __forceinline__ float2 warps_stats(struct raw (&row)[K], int lane, int n,
                                                     float epsilon)
{
    constexpr int N = per_16_bytes<T>::n;
    float sum = 0.0f, mean = 0.0f;
    if constexpr (CENTRED) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            float v[N];
            raw_get<T>(v, row[k]);
#pragma unroll
            for (int e = 0; e < N; e++)
                sum += v[e];
        }
        mean = warp_sum(sum) / (float)n;
        sum = 0.0f;
        warps_renew<Q>(row);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const bool inside = (lane + k * WARP) * N < n;
        float v[N];
        raw_get<T>(v, row[k]);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float d = inside ? v[e] - mean : 0.0f;
            sum += d * d;
        }
    }
    return {mean, 1.0f / sqrtf(warp_sum(sum) / (float)n + epsilon)};
}

/* y may be x: a row is read and written by one warp. */
template <int Q, bool CENTRED, typename T>
static __global__ void __launch_bounds__(WARPS_THREADS, (warps_blocks<Q, T>::n))
    norm_warps(const struct norm_args<T> a)
{
    constexpr int N = per_16_bytes<T>::n, K = Q * 8 / N;
    __shared__ alignas(16) float w[Q * WARPS_STEP], b[CENTRED ? Q * WARPS_STEP : 4];
    const int lane = threadIdx.x % WARP, n = (int)a.n;
    const int64_t distance = (int64_t)gridDim.x * (WARPS_THREADS / WARP);
    int64_t row = blockIdx.x + (int64_t)gridDim.x * (threadIdx.x / WARP);
    struct raw now[K], next[K];
    if (row < a.n_rows)
        warps_fetch<K, T>(next, a.x + row * n, lane, n);
    warps_share<T>(w, a.w, K * WARP, n, 1.0f);
    if constexpr (CENTRED)
        warps_share<T>(b, a.b, K * WARP, n, 0.0f);
    __syncthreads();
    for (; row < a.n_rows; row += distance) {
#pragma unroll
        for (int k = 0; k < K; k++)
            now[k] = next[k];
        if (row + distance < a.n_rows)
            warps_fetch<K, T>(next, a.x + (row + distance) * n, lane, n);
        const float2 stats = warps_stats<Q, CENTRED, K, T>(now, lane, n, a.epsilon);
        warps_renew<Q>(now);
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int j = (lane + k * WARP) * N;
            if (j >= n)
                break;
            float v[N], scale[N], shift[N] = {};
            raw_get<T>(v, now[k]);
            warps_get<N>(scale, w, k, lane);
            if constexpr (CENTRED)
                warps_get<N>(shift, b, k, lane);
#pragma unroll
            for (int e = 0; e < N; e++)
                v[e] = (v[e] - stats.x) * stats.y * scale[e] + shift[e];
            store_f32(a.y + row * n + j, v);
        }
        if (lane == 0) {
            a.rstd[row] = stats.y;
            if constexpr (CENTRED)
                a.mean[row] = stats.x;
        }
    }
}

template <int Q, bool CENTRED, typename T>
static void norm_warps_launch(const struct kernel_ctx *x, const struct norm_args<T> &a)
{
    int64_t most = (int64_t)x->env.gpu->n_multiprocessors * warps_blocks<Q, T>::n;
    norm_warps<Q, CENTRED, T>
        <<<grid_for(a.n_rows, WARPS_THREADS / WARP, most), WARPS_THREADS, 0, cuda_stream(x)>>>(a);
}

/* Rows that warps_take; all data aligned to 16 bytes. */
template <bool CENTRED, typename T, int Q = 1>
static void norm_warps_run(const struct kernel_ctx *x, const struct norm_args<T> &a)
{
    if (a.n <= Q * WARPS_STEP)
        norm_warps_launch<Q, CENTRED, T>(x, a);
    else if constexpr (Q < (sizeof(T) == 2 ? 8 : 4))
        norm_warps_run<CENTRED, T, Q + 1>(x, a);
}

#endif
