/* cuda_norm_warps.cuh: layer_norm and rms_norm of rows up to 1024 elements, a warp to a row.
 *
 * A warp takes rows a fixed distance apart and has the next row on its way while it works on one;
 * nothing in the loop waits for other warps. A lane holds Q * 8 elements of a row: its vectors of
 * 16 bytes lie WARP vectors apart. Weights are kept in shared memory in f32.
 *
 * The gradient keeps a lane's share of dw and db in registers; a block's warps add theirs in a
 * fixed order at the end and leave one line in the workspace, which columns_finish adds to the
 * other blocks' lines.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_NORM_WARPS_CUH
#define SNUG_DEVICE_CUDA_CUDA_NORM_WARPS_CUH

#include "device/cuda/cuda_norm.cuh"

static constexpr int WARPS_QUARTER = 8 * WARP;          /* elements of a row for each step of Q */
static constexpr int WARPS_LONGEST = 4 * WARPS_QUARTER; /* Q is 1 to 4 */
static constexpr int WARPS_THREADS = 256;               /* forward */
static constexpr int WARPS_SLOTS =
    4; /* places where a block's warps add up; divides their number */

static inline bool warps_take(int64_t n, enum dtype d)
{
    return n % (16 / dtype_size(d)) == 0 && n <= WARPS_LONGEST;
}

/* ---- vectors ----------------------------------------------------------------------------------
 */

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

/* The weight to shared memory by the whole block, zeros past its end. */
template <int K, typename T>
static __device__ __forceinline__ void warps_share(float *shared, const struct weight<T> &w, int n,
                                                   float absent)
{
    constexpr int N = per_16_bytes<T>::n;
    for (int i = threadIdx.x; i < K * WARP; i += blockDim.x) {
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

/* ---- forward ----------------------------------------------------------------------------------
 */

/* Blocks that fit on a multiprocessor by their registers. */
template <int Q, typename T> struct warps_blocks {
    static constexpr int n = sizeof(T) == 2 ? (Q <= 3 ? 4 : 3) : (Q <= 3 ? 3 : 2);
};

/* y may be x: a row is read and written by one warp. */
template <int Q, bool CENTRED, typename T>
static __global__ void __launch_bounds__(WARPS_THREADS, (warps_blocks<Q, T>::n))
    norm_warps(const struct norm_args<T> a)
{
    constexpr int N = per_16_bytes<T>::n, K = Q * 8 / N;
    __shared__ alignas(16) float w[Q * WARPS_QUARTER], b[CENTRED ? Q * WARPS_QUARTER : 4];
    const int lane = threadIdx.x % WARP, n = (int)a.n;
    const int64_t distance = (int64_t)gridDim.x * (WARPS_THREADS / WARP);
    int64_t row = grid_thread() / WARP;
    struct raw next[K];
    if (row < a.n_rows)
        warps_fetch<K, T>(next, a.x + row * n, lane, n);
    warps_share<K, T>(w, a.w, n, 1.0f);
    if constexpr (CENTRED)
        warps_share<K, T>(b, a.b, n, 0.0f);
    __syncthreads();
    for (; row < a.n_rows; row += distance) {
        float v[K][N], sum = 0.0f, mean = 0.0f;
#pragma unroll
        for (int k = 0; k < K; k++)
            raw_get<T>(v[k], next[k]);
        if (row + distance < a.n_rows)
            warps_fetch<K, T>(next, a.x + (row + distance) * n, lane, n);
        if constexpr (CENTRED) {
#pragma unroll
            for (int k = 0; k < K; k++) {
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum += v[k][e];
            }
            mean = warp_sum(sum) / (float)n;
            sum = 0.0f;
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            const bool inside = (lane + k * WARP) * N < n;
#pragma unroll
            for (int e = 0; e < N; e++) {
                const float d = inside ? v[k][e] - mean : 0.0f;
                sum += d * d;
            }
        }
        const float rstd = 1.0f / sqrtf(warp_sum(sum) / (float)n + a.epsilon);
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int j = (lane + k * WARP) * N;
            if (j >= n)
                break;
            float scale[N], shift[N] = {};
            warps_get<N>(scale, w, k, lane);
            if constexpr (CENTRED)
                warps_get<N>(shift, b, k, lane);
#pragma unroll
            for (int e = 0; e < N; e++)
                v[k][e] = (v[k][e] - mean) * rstd * scale[e] + shift[e];
            store_f32(a.y + row * n + j, v[k]);
        }
        if (lane == 0) {
            a.rstd[row] = rstd;
            if constexpr (CENTRED)
                a.mean[row] = mean;
        }
    }
}

template <int Q, bool CENTRED, typename T>
static void norm_warps_launch(const struct kernel_ctx *x, const struct norm_args<T> &a)
{
    int64_t most = (int64_t)cuda_libraries_of(&x->env)->n_multiprocessors * warps_blocks<Q, T>::n;
    norm_warps<Q, CENTRED, T>
        <<<grid_for(a.n_rows, WARPS_THREADS / WARP, most), WARPS_THREADS, 0, cuda_stream(x)>>>(a);
}

/* Rows that warps_take; all data aligned to 16 bytes. */
template <bool CENTRED, typename T>
static void norm_warps_run(const struct kernel_ctx *x, const struct norm_args<T> &a)
{
    switch (ceil_div(a.n, WARPS_QUARTER)) {
    case 1:
        norm_warps_launch<1, CENTRED, T>(x, a);
        break;
    case 2:
        norm_warps_launch<2, CENTRED, T>(x, a);
        break;
    case 3:
        norm_warps_launch<3, CENTRED, T>(x, a);
        break;
    default:
        norm_warps_launch<4, CENTRED, T>(x, a);
    }
}

/* ---- gradient ---------------------------------------------------------------------------------
 */

/* Warps of a block, one block to a multiprocessor: what its registers hold. */
static __host__ __device__ constexpr int warps_of_grad(int q)
{
    return q <= 3 ? 16 : 12;
}

/* Blocks, each of which leaves one line. */
static inline int64_t warps_grad_blocks(const struct kernel_env *env, int64_t n_rows, int64_t n)
{
    return (int64_t)grid_for(n_rows, warps_of_grad((int)ceil_div(n, WARPS_QUARTER)),
                             cuda_libraries_of(env)->n_multiprocessors);
}

/* A row on its way: a lane's vectors of dy and x, and the row's statistics. */
template <int K> struct warps_row {
    struct raw dy[K], x[K];
    float mean, rstd;
};

template <int K, bool CENTRED, typename T>
static __device__ __forceinline__ void warps_fetch_row(struct warps_row<K> &to,
                                                       const struct norm_grad_args<T> &a,
                                                       int64_t row, int lane, int n)
{
    warps_fetch<K, T>(to.dy, a.dy + row * n, lane, n);
    warps_fetch<K, T>(to.x, a.x + row * n, lane, n);
    to.rstd = a.rstd[row];
    to.mean = CENTRED ? a.mean[row] : 0.0f;
}

/* One row: dx, and what it adds to the lane's dw and db. The second pass makes dy w and the
 * normalised x again from the vectors: they take half the registers. */
template <int K, bool CENTRED, typename T>
static __device__ __forceinline__ void warps_row_grad(struct warps_row<K> &r,
                                                      float (&dw)[K][per_16_bytes<T>::n],
                                                      float (&db)[K][per_16_bytes<T>::n], T *dx,
                                                      const T *add, const float *w, int lane, int n)
{
    constexpr int N = per_16_bytes<T>::n;
    float sum_g = 0.0f, sum_gh = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        float scale[N], dy[N], x[N];
        warps_get<N>(scale, w, k, lane);
        raw_get<T>(dy, r.dy[k]);
        raw_get<T>(x, r.x[k]);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float h = (x[e] - r.mean) * r.rstd, g = dy[e] * scale[e];
            dw[k][e] += dy[e] * h;
            if constexpr (CENTRED) {
                db[k][e] += dy[e];
                sum_g += g;
            }
            sum_gh += g * h;
        }
        raw_renew(r.dy[k]);
        raw_renew(r.x[k]);
    }
    const float avg_g = CENTRED ? warp_sum(sum_g) / (float)n : 0.0f;
    const float avg_gh = warp_sum(sum_gh) / (float)n;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int j = (lane + k * WARP) * N;
        if (j >= n)
            break;
        float v[N], dy[N], x[N];
        warps_get<N>(v, w, k, lane);
        raw_get<T>(dy, r.dy[k]);
        raw_get<T>(x, r.x[k]);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float h = (x[e] - r.mean) * r.rstd;
            v[e] = r.rstd * (dy[e] * v[e] - avg_g - h * avg_gh);
        }
        if (add)
            vector_add(v, add + j);
        store_f32(dx + j, v);
    }
}

/* Adds a lane's sums to its warp's slot; the first warp of a slot sets it. */
template <int K, int N>
static __device__ __forceinline__ void warps_add(float *slot, const float (&sums)[K][N], int lane,
                                                 bool is_first)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        float v[N] = {};
        if (!is_first)
            warps_get<N>(v, slot, k, lane);
#pragma unroll
        for (int e = 0; e < N; e++)
            v[e] += sums[k][e];
        warps_put<N>(slot, v, k, lane);
    }
}

/* dx may be dy, x or add: a row is read and written by one warp, and the row on its way is not yet
 * written. f32 rows are not read ahead, for want of registers. */
template <int Q, bool CENTRED, typename T>
static __global__ void __launch_bounds__(warps_of_grad(Q) * WARP, 1)
    norm_grad_warps(const struct norm_grad_args<T> a)
{
    constexpr int N = per_16_bytes<T>::n, K = Q * 8 / N, LENGTH = Q * WARPS_QUARTER;
    constexpr int WARPS = warps_of_grad(Q), SUMS = CENTRED ? 2 : 1;
    constexpr bool AHEAD = sizeof(T) == 2;
    __shared__ alignas(16) float w[LENGTH], slots[WARPS_SLOTS][SUMS][LENGTH];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = (int)a.n;
    const int64_t distance = (int64_t)gridDim.x * WARPS;
    int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    float dw[K][N] = {}, db[K][N] = {};
    struct warps_row<K> now, next;
    if (AHEAD && row < a.n_rows)
        warps_fetch_row<K, CENTRED, T>(next, a, row, lane, n);
    warps_share<K, T>(w, a.w, n, 1.0f);
    __syncthreads();
    for (; row < a.n_rows; row += distance) {
        if constexpr (AHEAD) {
            now = next;
            if (row + distance < a.n_rows)
                warps_fetch_row<K, CENTRED, T>(next, a, row + distance, lane, n);
        } else {
            warps_fetch_row<K, CENTRED, T>(now, a, row, lane, n);
        }
        warps_row_grad<K, CENTRED, T>(now, dw, db, a.dx + row * n, a.add ? a.add + row * n : NULL,
                                      w, lane, n);
    }
    for (int round = 0; round < WARPS / WARPS_SLOTS; round++) {
        if (warp / WARPS_SLOTS == round) {
            warps_add<K, N>(slots[warp % WARPS_SLOTS][0], dw, lane, round == 0);
            if constexpr (CENTRED)
                warps_add<K, N>(slots[warp % WARPS_SLOTS][1], db, lane, round == 0);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < SUMS * n; i += WARPS * WARP) {
        const int which = i / n, j = i % n, vector = j / N, e = j % N;
        const int at = warps_at<N>(vector / WARP, vector % WARP, e) + e % 4;
        float sum = slots[0][which][at];
#pragma unroll
        for (int s = 1; s < WARPS_SLOTS; s++)
            sum += slots[s][which][at];
        a.partial[(int64_t)blockIdx.x * SUMS * n + i] = sum;
    }
}

template <int Q, bool CENTRED, typename T>
static void norm_grad_warps_launch(const struct kernel_ctx *x, const struct norm_grad_args<T> &a)
{
    norm_grad_warps<Q, CENTRED, T><<<(unsigned)warps_grad_blocks(&x->env, a.n_rows, a.n),
                                     warps_of_grad(Q) * WARP, 0, cuda_stream(x)>>>(a);
}

/* Rows that warps_take; all data aligned to 16 bytes. Leaves warps_grad_blocks lines. */
template <bool CENTRED, typename T>
static void norm_grad_warps_run(const struct kernel_ctx *x, const struct norm_grad_args<T> &a)
{
    switch (ceil_div(a.n, WARPS_QUARTER)) {
    case 1:
        norm_grad_warps_launch<1, CENTRED, T>(x, a);
        break;
    case 2:
        norm_grad_warps_launch<2, CENTRED, T>(x, a);
        break;
    case 3:
        norm_grad_warps_launch<3, CENTRED, T>(x, a);
        break;
    default:
        norm_grad_warps_launch<4, CENTRED, T>(x, a);
    }
}

#endif
